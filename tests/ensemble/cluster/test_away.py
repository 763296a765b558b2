"""Blocks computed by workers, in any order, are bit-identical to those of one process."""

import errno
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from jaxmech.config.errors import StoppedError
from jaxmech.config.run_folder import FolderError, locked
from jaxmech.config.toml import read
from jaxmech.ensemble import RunWarning, Study, run_study
from jaxmech.ensemble.cluster.tasks import ClusterError, Tasks
from jaxmech.ensemble.cluster.workers import Sizes
from jaxmech.ensemble.store.checksums import marked_blocks
from jaxmech.ensemble.store.folder import RunFolder
from tests.ensemble.cluster.crews import Crew
from tests.ensemble.studies import OBSERVED, killed, resealed, same_results, write_study

CHECKS = import_module("jaxmech.ensemble.cluster.connect")
ON = OBSERVED + '\n[cluster]\nscheduler = "local:2"\n'
UNTIL = '\n[until]\nquantity = "right"\nhalf_width = 0.45\nat_least = 4\n'


@pytest.fixture
def crew(monkeypatch) -> Crew:
    """Two workers that are threads, in place of a cluster; blocks are done in random order."""
    chance = random.Random(4)
    found = Crew(2, seconds=lambda item, again: chance.uniform(0.0, 0.1))

    @contextmanager
    def connected(cluster, tell) -> Iterator[Tasks]:
        yield Tasks(found, losses=0, waiting=tell)

    monkeypatch.setattr(CHECKS, "connected", connected)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The run of one process."""
    config = write_study(tmp_path_factory.mktemp("whole"), ON.partition("[cluster]")[0])
    run_study(read(config, Study), config.parent / "run", folder=config.parent)
    return config.parent / "run"


def test_results_are_bit_identical_to_one_process(whole, tmp_path, crew) -> None:
    config = write_study(tmp_path, ON)
    run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    assert len(crew.given) >= 3
    assert same_results(tmp_path / "run", whole)
    assert not (tmp_path / "run" / ".lease").exists()


@pytest.mark.slow
def test_a_run_continues_with_workers_and_without(whole, tmp_path, crew) -> None:
    config, out = write_study(tmp_path, ON), tmp_path / "run"
    shutil.copytree(whole, out)
    killed(out, 1, 3, 4)
    kept = {b: (out / "blocks" / f"{b:06d}").stat().st_mtime_ns for b in (0, 2)}
    run_study(read(config, Study), out, folder=tmp_path)
    assert same_results(out, whole)
    assert kept == {b: (out / "blocks" / f"{b:06d}").stat().st_mtime_ns for b in kept}
    assert {block for part in crew.given for block in part} == {1, 3, 4}


@pytest.mark.slow
def test_a_study_stops_at_the_same_block(tmp_path, crew) -> None:
    plain = ON.partition("[cluster]")[0]
    config = write_study(tmp_path, plain + UNTIL)
    run_study(read(config, Study), tmp_path / "one", folder=tmp_path)
    config = write_study(tmp_path, plain + UNTIL + '[cluster]\nscheduler = "local:2"\n')
    run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    assert len(marked_blocks(tmp_path / "one")) < 5
    assert same_results(tmp_path / "run", tmp_path / "one")
    assert marked_blocks(tmp_path / "run") == marked_blocks(tmp_path / "one")


@pytest.mark.slow
def test_other_processors_are_reported_on_a_cluster_and_refused_elsewhere(
    whole, tmp_path, crew
) -> None:
    config, out = write_study(tmp_path, ON), tmp_path / "run"
    shutil.copytree(whole, out)
    killed(out, 1, 3)
    facts = json.loads((out / "environment.json").read_text())
    (out / "environment.json").write_text(json.dumps({**facts, "processor": "Other"}))
    resealed(out, "summary.json", "summary.txt", "statistics.npz")
    study = read(config, Study)
    with pytest.raises(FolderError, match="processor is"):
        run_study(study.__class__(**{**vars(study), "cluster": None}), out, folder=tmp_path)
    with pytest.warns(RunWarning, match='processor is "Other" there .* in the last bits'):
        run_study(study, out, folder=tmp_path)
    assert same_results(out, whole)


@pytest.mark.slow
def test_a_full_disk_of_a_worker_is_reported_and_its_block_computed_later(
    whole, tmp_path, crew, monkeypatch
) -> None:
    config, out = write_study(tmp_path, ON), tmp_path / "run"
    plain = RunFolder.write

    def full(self, block, arrays) -> None:
        if block == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(self, block, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write", full)
        with pytest.raises(FolderError, match="cannot be used: No space left on device"):
            run_study(read(config, Study), out, folder=tmp_path)
    assert 2 not in marked_blocks(out)
    assert not (out / ".lease").exists()
    run_study(read(config, Study), out, folder=tmp_path)
    assert same_results(out, whole)


def test_two_masters_are_refused(whole, tmp_path, crew) -> None:
    config, out = write_study(tmp_path, ON), tmp_path / "run"
    shutil.copytree(whole, out)
    killed(out, 1)
    with locked(out), pytest.raises(FolderError, match=r"by another process \(\d+ on "):
        run_study(read(config, Study), out, folder=tmp_path)
    assert crew.given == []


@pytest.mark.slow
def test_the_processors_of_a_cluster_are_recorded(tmp_path, crew) -> None:
    crew.facts = {"processor": "Quick One"}
    config = write_study(tmp_path, ON)
    run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    facts = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert facts["processor"] == "Quick One"
    mark = json.loads((tmp_path / "run" / "blocks" / "000000").read_text())
    assert mark["processor"] != "Quick One"  # what this process is: a thread computed it


def test_workers_of_another_version_are_refused_before_anything_is_made(tmp_path, crew) -> None:
    crew.facts = {"jaxlib": "0.1"}
    config = write_study(tmp_path, ON)
    with pytest.raises(ClusterError, match=r'jaxlib is ".*" there and "0\.1" here; install'):
        run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()
    assert crew.given == []


@pytest.mark.slow
def test_a_run_stops_on_request(whole, tmp_path, crew) -> None:
    config, out = write_study(tmp_path, ON), tmp_path / "run"
    study = read(config, Study)
    with pytest.raises(StoppedError):
        run_study(study, out, folder=tmp_path, stop=lambda: len(marked_blocks(out)) > 1)
    assert 2 <= len(marked_blocks(out)) < 5
    assert not (out / ".lease").exists()
    run_study(study, out, folder=tmp_path)
    assert same_results(out, whole)


@pytest.mark.slow
def test_a_chunk_that_is_given_is_a_task(tmp_path, crew) -> None:
    config = write_study(tmp_path, ON.replace("block = 4", "block = 4\nchunk = 8"))
    run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    assert crew.given == [(0, 1), (2, 3), (4,)]


def test_tasks_grow_to_half_a_minute_and_shrink_towards_the_end() -> None:
    sizes, left, given = Sizes(), 5000, list[int]()
    while left:
        given.append(sizes.next(left, workers=8))
        sizes.took(given[-1], 0.5 * given[-1])
        left -= given[-1]
    assert given[0] == 1
    assert max(given) == 60
    assert given[1:] == sorted(given[1:], reverse=True)
    assert given[-1] == 1
