"""The commands, from the outside: exit codes, messages, and runs that are killed."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import models
from jaxmech.cli import doctor
from jaxmech.cli.main import main
from jaxmech.ensemble.store import marked_blocks as finished_blocks
from tests.ensemble.studies import STUDY, arrays, same_bits, write_study

COMMANDS = sys.modules["jaxmech.cli.main"]  # the package has a function of that name
ROOT = Path(__file__).resolve().parents[2]
# 40 blocks of some 60 ms each: however busy the machine, a signal comes before the last of them.
BLOCKS = 40
MANY = STUDY.replace("size = 20", "size = 159").replace("per_save = 8", "per_save = 20_000")


# A shell starts background jobs with SIGINT ignored, which child processes inherit; restore it.
LISTENING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxmech.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def stopped(sent: int, config: Path, out: Path) -> tuple[int, str]:
    """Send a signal to a run after its next block: exit code and errors."""
    before = len(finished_blocks(out))
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING, "ensemble", config, "--out", out],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while len(finished_blocks(out)) == before and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(sent)
    error = process.communicate(timeout=60)[1]
    return process.returncode, error


def written_at(out: Path) -> dict[int, int]:
    """The time at which each finished block was written."""
    names = {block: out / "blocks" / f"{block:06d}" for block in finished_blocks(out)}
    return {block: name.stat().st_mtime_ns for block, name in names.items()}


@pytest.mark.slow
def test_a_run_that_is_killed_and_interrupted_continues_to_the_same_bits(tmp_path) -> None:
    config, out, whole = write_study(tmp_path, MANY), tmp_path / "run", tmp_path / "whole"
    code, error = stopped(signal.SIGKILL, config, out)
    assert code == -signal.SIGKILL, error
    first = written_at(out)
    code, error = stopped(signal.SIGINT, config, out)
    assert code == 130, error
    assert f"continue with: jaxmech ensemble {config} --out {out}" in error
    assert "Traceback" not in error
    second = written_at(out)
    assert 0 < len(first) < len(second) < BLOCKS

    assert main(["ensemble", str(config), "--out", str(out)]) == 0
    assert main(["ensemble", str(config), "--out", str(whole)]) == 0
    assert same_bits(out, whole)
    assert np.all(arrays(out)["status"] == 0)
    assert first.items() <= second.items() <= written_at(out).items()


def test_a_new_study_runs_as_it_is(tmp_path, capsys) -> None:
    folder = tmp_path / "a swing"
    assert main(["new", str(folder)]) == 0
    assert f"cd '{folder}' &&" in capsys.readouterr().out
    assert {file.name for file in folder.iterdir()} == {"README.md", "model.py", "study.toml"}
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("# a swing\n")
    config = folder / "study.toml"
    config.write_text(config.read_text("utf-8").replace("size = 1000 ", "size = 16 "), "utf-8")
    assert main(["ensemble", str(config), "--out", str(tmp_path / "run")]) == 0
    output, error = capsys.readouterr()
    assert error == ""  # no bar where there is no terminal
    assert output.startswith((tmp_path / "run" / "summary.txt").read_text())
    assert "beyond" in output
    assert {p.name for p in (tmp_path / "run").iterdir() if p.name[0] != "."} == {
        "blocks",
        "config.toml",
        "environment.json",
        "model.py",
        "results.zarr",
        "statistics.npz",
        "summary.json",
        "summary.txt",
    }


@pytest.mark.slow
def test_too_many_failures_set_the_exit_code(tmp_path, capsys) -> None:
    text = STUDY.replace("limit = 2.0", "limit = 0.5")
    out = str(tmp_path / "run")
    assert main(["ensemble", str(write_study(tmp_path, text)), "--out", out]) == 1
    assert "NONFINITE" in capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    fraction = summary["status"]["NONFINITE"]["count"] / 20
    for allowed, code in ((fraction, 0), (fraction - 0.05, 1)):
        config = write_study(tmp_path, f"failed_allowed = {allowed}\n" + text)
        assert main(["ensemble", str(config), "--out", f"{out}{code}"]) == code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("size = 20", "sise = 20", "study.toml:3: sise is not a known key; did you"),
        (
            "x = {",
            "x = 0\ny = {",
            "study.toml:16: coordinates.y is not a coordinate of spring.py:spring",
        ),
        (
            "spring.py",
            "sprong.py",
            "study.toml:2: model must name a Python file, but there is none",
        ),
        ("m = 1.0", "", "study.toml:17: parameters must give the parameter 'm'"),
    ],
)
def test_bad_input_is_refused_before_any_work(tmp_path, capsys, old, new, message) -> None:
    config = write_study(tmp_path, STUDY.replace(old, new, 1))
    assert main(["ensemble", str(config), "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"jaxmech: {tmp_path}/{message}")
    assert not (tmp_path / "run").exists()


def test_folders_are_refused_with_a_message(tmp_path, capsys) -> None:
    config = str(write_study(tmp_path))
    assert main(["ensemble", config, "--out", f"{config}/run"]) == 2
    assert "cannot be used: Not a directory" in capsys.readouterr().err
    assert main(["ensemble", config, "--out", str(tmp_path)]) == 2
    assert "holds files but no run" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ensemble", "doctor"])
def test_a_known_bad_jax_is_refused(tmp_path, capsys, monkeypatch, command) -> None:
    config = write_study(tmp_path)
    monkeypatch.setattr(COMMANDS, "version", lambda package: "0.10.2")
    rest = [str(config), "--out", str(tmp_path / "run")] if command == "ensemble" else []
    assert main([command, *rest]) == 2
    assert "jax 0.10.2 is none of jax" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_doctor_prints_versions_devices_and_precision_and_computes(capsys, monkeypatch) -> None:
    assert main(["doctor"]) == 0
    *lines, verdict = capsys.readouterr().out.splitlines()
    assert verdict.strip() == "all is well"
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert {"jax", "jaxlib", "python", "platform", "device"} <= shown.keys()
    assert shown["x64"] == "True"
    assert shown["Python"] == "computes in float64"
    assert shown["cpu:0"] == "cpu; batches run as native code, in lanes"
    real = doctor.simulate

    def rounded(system, q, *rest, **policy):  # a motion without a gradient
        return replace(real(system, q, *rest, **policy), q=jnp.tile(jnp.round(q * 1e6), (21, 1)))

    monkeypatch.setattr(doctor, "simulate", rounded)
    assert main(["doctor"]) == 1
    assert "FAILED: gradient and difference differ by" in capsys.readouterr().out


def test_models_are_listed_with_their_degrees_of_freedom(capsys) -> None:
    assert main(["models"]) == 0
    rows = [line.split(maxsplit=4) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == list(models.CATALOGUE)
    counts = {row[0]: tuple(map(int, row[1:4])) for row in rows}
    assert counts["double_pendulum"] == (4, 2, 2)
    assert counts["four_bars"] == (15, 14, 1)


def test_a_folder_that_is_not_empty_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text("mine", encoding="utf-8")
    assert main(["new", str(tmp_path)]) == 2
    assert "exists already; give the name of a new folder" in capsys.readouterr().err
    assert (tmp_path / "model.py").read_text(encoding="utf-8") == "mine"


FAILURE = """
model = "pendulum"
size = 64

[times]
end = 1.0
saves = 6

[start]
theta = { distribution = "normal", mean = 0.0, sd = 0.3 }

[failure]
of = "x1"
above = 0.9
method = "importance"
coefficient_of_variation = 0.2
"""


def test_the_folder_of_a_probability_of_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = tmp_path / "swing.toml", tmp_path / "run"
    config.write_text(FAILURE)
    assert main(["failure", str(config), "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert (run / "failure.txt").read_text().strip() in printed
    assert 0.0 < json.loads((run / "failure.json").read_text())["probability"] < 0.1
    for command in (["report", str(run)], ["ensemble", str(config), "--out", str(run)]):
        assert main(command) == 2
        assert "holds a run of `jaxmech failure`" in capsys.readouterr().err
