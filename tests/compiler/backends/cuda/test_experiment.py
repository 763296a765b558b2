"""`python -m experiments.cuda`: its output without a GPU, its tables and its pictures."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from experiments.cuda import __main__ as command
from experiments.cuda import offline, ptxas
from experiments.cuda.kernels import Called
from jaxmech.compiler.frontend.build import function_kernel

ABOUT = {"model": "pendulum", "coordinates": 2, "way": "forward", "type": "float64", "kernel": 0}


needs_ptxas = pytest.mark.skipif(ptxas.ptxas() is None, reason="ptxas is missing")


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_has_gpu", lambda: False)


def test_without_a_gpu_it_says_what_can_be_done(
    without_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("No NVIDIA GPU is visible to JAX")
    assert f"--offline --out {tmp_path}" in told
    assert told.count("\n") == 1


@needs_ptxas
def test_table(without_gpu: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = function_kernel(jax.make_jaxpr(lambda x: jnp.sin(x) * x)(1.0))
    row = {**ABOUT, "kernels": 1, **offline.measured(Called(kernel, frozenset([0])))}
    monkeypatch.setattr(offline, "table", lambda models, known, tell: iter([[row]]))
    assert command.main(["--out", str(tmp_path), "--offline"]) == 0
    results = json.loads((tmp_path / "registers.json").read_text(encoding="utf-8"))
    assert results["kernels"] == [row]
    assert row["operations"] == kernel.operations == 2
    assert row["lines_in_double"] > 10
    text = (tmp_path / "registers.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| pendulum")]
    registers = row["architectures"]["sm_90"]["registers"]
    assert line.startswith("| pendulum | 2 | forward | float64 | 2 |")
    assert f"| {registers}, –, " in line
    assert "Not computed: pendulum, forward, float32; pendulum, projection, float64; " in text
