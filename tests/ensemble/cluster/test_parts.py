"""Parts of a study, each computed by itself, are together bit-identical to one run."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxmech.cli.main import main
from jaxmech.config.errors import InputError
from jaxmech.config.run_folder import FolderError, locked
from jaxmech.config.toml import read
from jaxmech.ensemble import RunWarning, Study, run_study
from jaxmech.ensemble.run import BlockRange
from jaxmech.ensemble.store.checksums import marked_blocks
from tests.ensemble.studies import OBSERVED, STUDY, same_results, write_study

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that one process has computed."""
    config = write_study(tmp_path_factory.mktemp("whole"), OBSERVED)
    run_study(read(config, Study), config.parent / "run", folder=config.parent)
    return config.parent / "run"


@pytest.mark.slow
def test_parts_and_the_rest_are_the_whole(whole, tmp_path, capsys) -> None:
    config, out = str(write_study(tmp_path, OBSERVED)), tmp_path / "run"
    assert main(["ensemble", config, "--out", str(out), "--blocks", "3:"]) == 0
    assert marked_blocks(out) == [3, 4]
    assert not (out / "summary.json").exists()
    assert "blocks 3:5 are done, 2 of all 5; the same command" in capsys.readouterr().out
    assert main(["ensemble", config, "--out", str(out), "--blocks", "1"]) == 0
    kept = {b: (out / "blocks" / f"{b:06d}").stat().st_mtime_ns for b in (1, 3, 4)}
    capsys.readouterr()
    assert main(["ensemble", config, "--out", str(out)]) == 0
    assert same_results(out, whole)
    assert kept == {b: (out / "blocks" / f"{b:06d}").stat().st_mtime_ns for b in kept}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5:7", "5:7 must lie within the blocks of this study, 0:5"),
        ("2:1", "must have a first block before the last"),
        ("a", "must be of the form FIRST:LAST, such as 0:100"),
        ("-1:2", "must be of the form FIRST:LAST"),
    ],
)
def test_wrong_parts_are_refused(tmp_path, text, message, capsys) -> None:
    config = str(write_study(tmp_path, OBSERVED))
    arguments = ["ensemble", config, "--out", str(tmp_path / "run"), f"--blocks={text}"]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "blocks").exists()


def test_a_part_may_reach_beyond_the_end() -> None:
    assert BlockRange.parsed("4:9").of(5) == range(4, 5)
    with pytest.raises(InputError, match="0:5"):
        BlockRange.parsed("5:9").of(5)


@pytest.mark.slow
def test_parts_share_a_folder_and_a_whole_run_does_not(whole, tmp_path) -> None:
    config, out = write_study(tmp_path, OBSERVED), tmp_path / "run"
    study = read(config, Study)
    run_study(study, out, folder=tmp_path, part=BlockRange(0, 1))
    with locked(out, shared=True):
        assert run_study(study, out, folder=tmp_path, part=BlockRange(1, 2))["done"] == 2
        with pytest.raises(FolderError, match="is being written by another process"):
            run_study(study, out, folder=tmp_path)
    with locked(out), pytest.raises(FolderError, match=r"by another process \(\d+ on .+\)"):
        run_study(study, out, folder=tmp_path, part=BlockRange(2, 3))
    assert (out / ".lock").read_text() == ""
    run_study(study, out, folder=tmp_path)
    assert same_results(out, whole)


@pytest.mark.slow
def test_a_part_repairs_only_its_own_blocks(whole, tmp_path) -> None:
    config, out = write_study(tmp_path, OBSERVED), tmp_path / "run"
    study = read(config, Study)
    shutil.copytree(whole, out)
    for block in (1, 3):
        (out / "results.zarr" / "q" / "c" / str(block) / "0" / "0").write_bytes(b"damage")
    before = (out / "blocks" / "000003").stat().st_mtime_ns
    with pytest.warns(RunWarning, match="to be recomputed: block 1"):
        run_study(study, out, folder=tmp_path, part=BlockRange(0, 2))
    assert (out / "blocks" / "000003").stat().st_mtime_ns == before
    (out / "environment.json").write_text("{}")
    with pytest.raises(FolderError, match="without --blocks repairs"):
        run_study(study, out, folder=tmp_path, part=BlockRange(0, 2))


@pytest.mark.slow
def test_blocks_beyond_the_stop_are_dropped(tmp_path) -> None:
    text = OBSERVED + '\n[until]\nquantity = "right"\nhalf_width = 0.45\nat_least = 4\n'
    config, out = write_study(tmp_path, text), tmp_path / "run"
    study = read(config, Study)
    run_study(study, tmp_path / "one", folder=tmp_path)
    last = len(marked_blocks(tmp_path / "one"))
    assert last < 5
    run_study(study, out, folder=tmp_path, part=BlockRange(3, 5))
    assert marked_blocks(out) == [3, 4]
    run_study(study, out, folder=tmp_path)
    assert marked_blocks(out) == marked_blocks(tmp_path / "one") == list(range(last))
    assert same_results(out, tmp_path / "one")


@pytest.mark.slow
def test_sigterm_stops_at_the_next_block_and_prints_how_to_continue(tmp_path) -> None:
    text = STUDY.replace("size = 20", "size = 399").replace("per_save = 8", "per_save = 3000")
    config, out = write_study(tmp_path, text), tmp_path / "run"
    command = [sys.executable, "-m", "jaxmech", "ensemble", str(config), "--out", str(out)]
    command += ["--progress", "json", "--blocks", "0:90"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not marked_blocks(out) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 143, error
    assert "jaxmech: SIGTERM: stopping after the current block" in error
    ours = f"continue with: jaxmech ensemble {config} --out {out} --blocks 0:90"
    assert error[-1] == f"jaxmech: stopped by SIGTERM; finished work is kept; {ours}"
    done = marked_blocks(out)
    assert 0 < len(done) < 90
    told = json.loads([line for line in error if line.startswith("{")][-1])
    assert told["size"] == 360
    assert 0 < told["done"] <= 4 * len(done)
