"""The page runs on a simulated pendulum, and on a short part of the real recordings.

docs/measured_pendulum.md shows the output for the whole recordings; the command `python
tests/test_measured_page.py` runs it on them, writes its pictures to docs/pictures and prints the
output of its blocks.
"""

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

import jaxmech as jm
from experiments.measured_pendulum.pendulums import PENDULUMS, rig

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "docs" / "measured_pendulum.md"
RECORDED = ROOT.parent / "shared" / "data" / "multiarm_double_pendulum.npz"
FILE = 'file, pictures = Path("../shared/data/multiarm_double_pendulum.npz"), Path("docs/pictures")'
SIZE = "segments, samples, stride = 26, 2667, 16"
SHORT = "segments, samples, stride = 4, 401, 20"
TRUTH = {"c1": 6e-4, "ws1": 4.0, "c2": 2e-4, "ws2": 6.0, "d1": 1.5e-5, "d2": 3e-6, "b2": 6e-5}


def blocks() -> list[tuple[str, str]]:
    """The Python blocks, each with the output that follows it."""
    text = TUTORIAL.read_text(encoding="utf-8")
    found = re.findall(
        r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```)?", text, re.DOTALL | re.MULTILINE
    )
    assert len(found) == text.count("```python")
    return found


def run(file: Path, pictures: Path, size: str = SIZE) -> tuple[dict[str, Any], list[str]]:
    """The names that the tutorial defines, and the output of each block."""
    names: dict[str, Any] = {}
    printed = []
    first, *rest = [code for code, _ in blocks()]
    assert first.count(FILE) == first.count(SIZE) == 1
    first = first.replace(FILE, f"file, pictures = Path({str(file)!r}), Path({str(pictures)!r})")
    for code in [first.replace(SIZE, size), *rest]:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            exec(compile(code, "docs/measured_pendulum.md", "exec"), names)
        printed.append(shown.getvalue())
    plt.close("all")
    return names, printed


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the same shape from a pendulum with known friction and realistic noise."""
    subject = rig("double", "lifting+air+drag").subject
    p = {**subject.params, **TRUTH, "zero1": -4e-4, "zero2": 1.1e-3}
    draw = np.random.default_rng(0)
    ts = jnp.linspace(0.0, 0.4, 401)
    steps = jm.FixedSteps(per_save=1)

    def swing(q0: jax.Array, v0: jax.Array) -> jax.Array:
        sol = jm.simulate(subject.system, q0, v0, ts, p, steps=steps)
        angles = jax.vmap(lambda q, v, t: subject.observe(q, v, t, p))(sol.q, sol.v, ts)
        return jnp.concatenate([angles, sol.v], axis=1)

    starts = np.pi + draw.uniform(-1.5, 1.5, (8, 2)), draw.normal(0.0, 4.0, (8, 2))
    swings = np.array(jax.vmap(swing)(*map(jnp.asarray, starts)))
    swings[..., :2] += draw.normal(0.0, 2e-4, swings[..., :2].shape)
    file = tmp_path_factory.mktemp("data") / "double.npz"
    np.savez(file, train=swings[:4], validation=swings[4:])
    return file


@pytest.mark.slow
def test_the_tutorial_runs_on_a_pendulum_that_is_known(made_up: Path, tmp_path: Path) -> None:
    names, printed = run(made_up, tmp_path, SHORT)
    simple, better = names["simple"], names["better"]
    assert better.errors.mean() < 4e-4 < simple.errors.mean()
    assert better.validation_errors.mean() < 4e-4
    p = PENDULUMS["double"].authors
    swing = p["m2"] * p["g"] * p["a2"] / (p["m2"] * p["a2"] ** 2 + p["I2"])
    for name in ("a1", "L1", "I1", "I2"):
        assert abs(better.params[name] / p[name] - 1) < 0.02
    assert abs(names["swing"].value - swing) < 4 * names["swing"].standard_error + 1e-2 * swing
    assert simple.identifiability.rank == 6
    assert any("4 numbers must come from elsewhere" in text for text in printed)
    said = re.findall(r"\(pictures/(fit_\w+\.png)\)", TUTORIAL.read_text(encoding="utf-8"))
    assert {file.name for file in tmp_path.iterdir()} == set(said)
    assert all((ROOT / "docs" / "pictures" / name).is_file() for name in said)


@pytest.mark.slow
def test_the_tutorial_runs_on_the_recordings(tmp_path: Path) -> None:
    if not RECORDED.is_file():
        pytest.skip(f"the recordings {RECORDED.name} are missing in {RECORDED.parent}")
    names, _ = run(RECORDED, tmp_path, SHORT)
    assert names["better"].errors.mean() < names["simple"].errors.mean() < 5e-3
    assert names["better"].validation_errors[:3].mean() < 5e-3


def test_exactly_the_blocks_that_print_have_output() -> None:
    assert [bool(said) for code, said in blocks()] == ["print(" in code for code, _ in blocks()]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for shown in run(RECORDED, ROOT / "docs" / "pictures")[1]:
        sys.stdout.write(f"```\n{shown}```\n\n" if shown else "")
