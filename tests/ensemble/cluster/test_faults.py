"""Clusters whose processes are killed: results bit-identical to one process, and resuming."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from jaxmech.ensemble.store.checksums import marked_blocks
from tests.ensemble.cluster.clusters import many, running_cluster, study_on, wait_until, workers_of
from tests.ensemble.studies import same_results, write_study

BLOCKS, LONG = 32, 110


def a_little_later(out: Path, chance: random.Random, process: subprocess.Popen) -> None:
    """Wait for up to 12 more blocks, on any machine, and up to a tenth of a second."""
    before, more = len(marked_blocks(out)), chance.randrange(12)
    wait_until(lambda: len(marked_blocks(out)) >= before + more, process)
    time.sleep(chance.uniform(0.0, 0.1))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that this process has computed alone."""
    config = write_study(tmp_path_factory.mktemp("whole"), many(BLOCKS))
    run_study(read(config, Study), config.parent / "run", folder=config.parent, tell=print)
    return config.parent / "run"


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """A longer one, whose processes can be killed several times."""
    config = write_study(tmp_path_factory.mktemp("long"), many(LONG))
    run_study(read(config, Study), config.parent / "run", folder=config.parent, tell=print)
    return config.parent / "run"


@pytest.mark.slow
def test_a_killed_worker_does_not_change_the_results(whole, tmp_path) -> None:
    config, out = write_study(tmp_path, many(BLOCKS)), tmp_path / "run"
    process = study_on(config, out, "--cluster", "local:2", "--chunk", 8)
    assert wait_until(lambda: marked_blocks(out), process)
    crew = workers_of(process)
    cores = len(os.sched_getaffinity(0))
    pinned = [frozenset(one.cpu_affinity()) for one in crew]
    assert all(len(own) == max(cores // 2, 1) for own in pinned)
    assert len(set(pinned)) == min(cores, 2)
    crew[0].kill()
    error = process.communicate(timeout=180)[1]
    assert process.returncode == 0, error
    assert len(marked_blocks(out)) == BLOCKS
    assert same_results(out, whole)
    assert not (out / ".lease").exists()


@pytest.mark.slow
def test_sigterm_stops_a_cluster_at_the_next_block(whole, tmp_path) -> None:
    config, out = write_study(tmp_path, many(BLOCKS)), tmp_path / "run"
    process = study_on(config, out, "--cluster", "local:1", "--chunk", 100)
    assert wait_until(lambda: marked_blocks(out), process)
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 143, error
    ours = f"continue with: jaxmech ensemble {config} --out {out} --cluster local:1"
    assert error.splitlines()[-1].endswith(ours)
    assert 0 < len(marked_blocks(out)) < BLOCKS
    run_study(read(config, Study), out, folder=tmp_path, tell=print)
    assert same_results(out, whole)


SBATCH = """#!/bin/bash
echo "Submitted batch job $$"
setsid bash "$1" > "$0.$$.log" 2>&1 < /dev/null &
echo $! > "$0.$$.pid"
"""
SCANCEL = """#!/bin/bash
for job in "$@"; do kill -- -$(cat "$(dirname "$0")/sbatch.$job.pid"); done
"""


@pytest.mark.slow
def test_jobs_of_slurm_compute(whole, tmp_path, monkeypatch) -> None:
    """With commands that start a job at once, in place of those of SLURM."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    table = '\n[cluster]\nscheduler = "slurm:2"\nmemory = "2 GiB"\n'
    config, out = write_study(tmp_path, many(BLOCKS) + table), tmp_path / "run"
    error = study_on(config, out).communicate(timeout=400)[1]
    assert same_results(out, whole), error
    assert len(list(folder.glob("sbatch.*.pid"))) >= 2


@pytest.mark.slow
def test_workers_are_killed_at_random_moments(long, tmp_path) -> None:
    """Two workers, of which one is killed three times; nannies start new ones."""
    chance = random.Random(19)
    config, out, killed = write_study(tmp_path, many(LONG)), tmp_path / "run", 0
    process = study_on(config, out, "--cluster", "local:2")
    assert wait_until(lambda: marked_blocks(out), process)
    while killed < 3 and process.poll() is None:
        a_little_later(out, chance, process)
        if crew := workers_of(process):
            chance.choice(crew).kill()
            killed += 1
            print(f"killed worker {killed} after {len(marked_blocks(out))} blocks")
    error = process.communicate(timeout=900)[1]
    assert process.returncode == 0, error
    assert killed == 3
    assert same_results(out, long)


@pytest.mark.slow
def test_the_scheduler_is_killed_at_random_moments(long, tmp_path) -> None:
    chance = random.Random(20)
    config, out = write_study(tmp_path, many(LONG)), tmp_path / "run"
    done = [0]
    for _ in range(2):
        with running_cluster(tmp_path, workers=2) as (address, scheduler):
            process = study_on(config, out, "--cluster", address)
            before = done[-1]
            assert wait_until(lambda n=before: len(marked_blocks(out)) > n, process)
            a_little_later(out, chance, process)
            scheduler.kill()
            error = process.communicate(timeout=120)[1]
        assert process.returncode == 2, error
        assert "the connection to the scheduler was lost; finished blocks are kept" in error
        done.append(len(marked_blocks(out)))
        print(f"killed the scheduler after {done[-1]} blocks")
    assert done == sorted(done)
    assert done[-1] < LONG
    with running_cluster(tmp_path, workers=2) as (address, _):
        process = study_on(config, out, "--cluster", address)
        error = process.communicate(timeout=900)[1]
    assert process.returncode == 0, error
    assert same_results(out, long)
