"""`python -m experiments.cuda`: its output without a GPU, its tables and its pictures."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import fit_evaluation
from experiments.cuda import __main__ as command
from experiments.cuda import agreement, chains, offline, ptxas, report, speed, uses
from experiments.cuda.cases import case
from experiments.cuda.kernels import Called
from jaxmech.compiler.frontend.build import function_kernel

ABOUT = {"model": "pendulum", "coordinates": 2, "way": "forward", "type": "float64", "kernel": 0}

ENVIRONMENT = {"devices": {"cuda": ["GPU"]}, "jax": "1", "processors": 1}

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


def test_a_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run finds it among the rows by its text."""
    compiled = []

    def measured(called: Called) -> dict[str, Any]:
        compiled.append(called)
        return {"operations": called.kernel.operations}

    kernel = function_kernel(jax.make_jaxpr(lambda x: x * 3)(1.0))
    monkeypatch.setattr(offline, "TYPES", (np.float64,))
    monkeypatch.setattr(offline, "kernels", lambda fn, *args: [Called(kernel, frozenset([0]))])
    monkeypatch.setattr(offline, "measured", measured)
    (first,) = offline.table(["pendulum"], ["forward"])
    (again,) = offline.table(["pendulum"], ["forward"], first)
    assert [row["entry"] for row in again] == [row["entry"] for row in first]
    assert len(compiled) == 1
    list(offline.table(["pendulum"], ["forward"], [{**first[0], "entry": "of another text"}]))
    assert len(compiled) == 2


def test_rows_of_other_models_are_kept() -> None:
    old = [{**ABOUT, "model": name, "x": 1} for name in ("pendulum", "chain")]
    old += [{**ABOUT, "way": "gradient", "kernel": k, "x": 1} for k in (0, 1)]
    new = [{**ABOUT, "x": 2}, {**ABOUT, "way": "gradient", "x": 2}]
    found = offline.merged(old, new)
    assert [(row["model"], row["way"], row["x"]) for row in found] == [
        ("pendulum", "forward", 2), ("pendulum", "gradient", 2), ("chain", "forward", 1),
    ]  # fmt: skip
    assert "chain, forward, float64" not in offline.missing(found)
    assert "chain, forward, float32" in offline.missing(found)


def test_rows_of_other_compilers_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_environment", lambda: {"llvmlite": "1", "ptxas": "2"})
    file = tmp_path / "registers.json"
    assert command._known(file) == []
    for ptxas_, kept in (("2", [ABOUT]), ("3", [])):
        stored = {"environment": {"llvmlite": "1", "ptxas": ptxas_}, "kernels": [ABOUT]}
        file.write_text(json.dumps(stored))
        assert command._known(file) == kept


def test_a_spill_is_reported() -> None:
    one = {"registers": 255, "spilled": 1024, "stack": 1024, "seconds": 0.5}
    row: dict[str, Any] = {**ABOUT, "kernels": 2, "operations": 1234, "llvm_seconds": 0.1}
    row |= {"lines_in_double": 3, "architectures": {"sm_90": one}}
    text = report.registers([row], [], "12.9")
    assert "Not computed" not in text
    assert "| pendulum | 2 | forward (1) | float64 | 1,234 | 0.10 | 255, 1,024 B, 0.50 |" in text
    assert "1 kernels, 1 of which spill" in text
    assert "n ≤ 4, 1 spill:\n\n- in float64: pendulum (forward)\n" in text


def test_differences_are_found() -> None:
    x, n = jnp.array([1.0, -4.0]), jnp.array([1, 2])
    assert agreement.difference([x, n], [x, n], 0.0)["agrees"]
    near = agreement.difference([x * (1 + 1e-3), n], [x, n], 1e-2)
    assert near["agrees"]
    assert near["difference"] == pytest.approx(1e-3)
    assert not agreement.difference([x * (1 + 1e-3), n], [x, n], 1e-4)["agrees"]
    assert not agreement.difference([x, n + 1], [x, n], 1.0)["agrees"]
    assert not agreement.difference([x.at[0].set(jnp.nan), n], [x, n], 1.0)["agrees"]


@pytest.mark.slow
def test_transformations_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All transformations agree, with the CPU in place of the GPU."""
    monkeypatch.setattr(agreement, "GPU", "cpu")
    rows = agreement.transformed()
    assert len(rows) == 9
    assert all(row["agrees"] for row in rows)


@pytest.mark.slow
def test_with_a_gpu_everything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All measurements run with the CPU in place of the GPU, one process and small batches."""
    one = case("pendulum", "solution", 5, 20)
    for module in (agreement, speed):
        monkeypatch.setattr(module, "GPU", "cpu")
    for name, size in {"STEPS": 20, "BATCHES": (5, 7), "COMPARED": 5, "VARIED": 5}.items():
        monkeypatch.setattr(speed, name, size)
    monkeypatch.setattr(speed, "LARGEST", 11)
    monkeypatch.setattr(speed, "CASES", (("pendulum", "float32", 5e9),))
    monkeypatch.setattr(speed, "BLOCKS", (64,))
    monkeypatch.setattr(speed, "LIMITS", (None, 96))
    monkeypatch.setattr(agreement, "all_models", lambda: [agreement.comparison(one, "solution")])
    monkeypatch.setattr(agreement, "transformations", lambda: [{"agrees": True}])
    for name, size in {"BATCH": 3, "STUDY": 4, "SAVES": 11, "STEPS": 20}.items():
        monkeypatch.setattr(uses, name, size)
    monkeypatch.setattr(
        uses, "FIT", fit_evaluation.FitEvaluation(recordings=1, samples=5, rounds=1)
    )
    monkeypatch.setattr(uses, "study", lambda: [np.ones(3)])  # takes a minute to compile
    monkeypatch.setattr(chains, "BODIES", (1,))
    monkeypatch.setattr(chains, "PATIENCE", 600.0)
    monkeypatch.setattr(chains, "BATCHES", {"jaxmech": (2, 3), "MJX": (2,)})
    monkeypatch.setattr(chains, "TYPES", ("float64",))
    monkeypatch.setattr(command, "_environment", lambda: ENVIRONMENT)
    assert command._online(tmp_path) == 0
    results = json.loads((tmp_path / "cuda.json").read_text(encoding="utf-8"))
    assert results["not_begun"] == []
    assert results["models"][0]["agrees"]
    assert [row["batch"] for row in results["batches"]] == [5, 7]
    routes = [row["route"] for row in results["compared"]]
    assert routes == [*["kernel"] * 5, "CPU", "plain vmap"]
    assert results["ten_million"][0]["batch"] == 11
    assert [row["register_limit"] for row in results["sweeps"]] == [None, 96] * 3
    assert all(
        row["steps_per_second"] > 0
        for part in ("batches", "compared", "ten_million", "sweeps")
        for row in results[part]
    )
    assert all(row["agrees"] for row in results["uses"] if row["route"] == "GPU")
    ours = [row for row in results["chains"] if row["engine"] == "jaxmech"]
    assert [row["batch"] for row in ours] == [2, 3]
    assert all(row["agrees"] for row in ours)
    names = {"cuda.json", "speeds.md", "speeds.png", "variants.png"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_tables_of_speeds() -> None:
    """The stored tables are those of the stored results."""
    folder = Path(__file__).parents[4] / "docs" / "gpu"
    results = json.loads((folder / "cuda.json").read_text(encoding="utf-8"))
    assert report.measured(results) == (folder / "speeds.md").read_text(encoding="utf-8")
    parts = ("transformations", "models", "uses", "chains")
    checked = [row for part in parts for row in results[part] if "agrees" in row]
    assert len(checked) > 80
    assert all(row["agrees"] for row in checked)


def test_pictures() -> None:
    one = {"model": "two", "type": "float64", "way": "forward", "batch": 10}
    one |= {"steps_per_second": 1e6, "block": 64, "register_limit": None}
    (ax,) = report.speeds([one, {**one, "batch": 100}]).axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["two, float64"]
    left, right = report.variants([one, {**one, "register_limit": 96}]).axes
    assert list(left.lines[0].get_xdata()) == [64]
    assert list(right.lines[0].get_xdata()) == [96]
