"""Units of recorded inputs of studies: converted, said, and refused where they are none."""

from pathlib import Path

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.ensemble import Fixed, RecordedInput, Study, Times, Uniform, open_results, run_study

PUSHED = """
import jaxmech as jm

cart = jm.System(
    lambda q, v, t, p: 0.5 * p["m"] * v @ v,
    force=lambda q, v, t, p: p["push"](t)[None],
    coordinates=("x",),
)
"""
MASS = 4.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cart.py").write_text(PUSHED)
    return tmp_path


def pushed(folder: Path, push: RecordedInput, out: str = "run") -> np.ndarray:
    """The places after 2 s from rest."""
    study = Study(
        model="cart.py:cart", size=4, block=4, times=Times(end=2.0, saves=2),
        steps=jm.FixedSteps(4), coordinates={"x": Uniform(0.0, 1e-9)},
        parameters={"m": Fixed(MASS)}, inputs={"push": push},
    )  # fmt: skip
    run_study(study, folder / out, folder=folder)
    return np.asarray(open_results(folder / out).group["q"][:, -1, 0])  # type: ignore[index]


def of(column: str = "force", **settings: object) -> RecordedInput:
    return RecordedInput(file="push.csv", column=column, **settings)  # type: ignore[arg-type]


def test_a_force_in_kilonewton_over_milliseconds(folder: Path) -> None:
    """A constant force F moves a mass by F t**2 / (2 m)."""
    (folder / "push.csv").write_text("t [ms],force [kN]\n0,0.003\n2000,0.003\n")
    expected = 3.0 * 2.0**2 / (2 * MASS)
    np.testing.assert_allclose(pushed(folder, of("force [kN]")), expected, rtol=1e-8)
    summary = (folder / "run" / "summary.txt").read_text()
    assert "input push from push.csv; t [ms] was converted to s; force [kN] was" in summary


def test_units_that_are_not_in_the_file_and_those_that_are_kept(folder: Path) -> None:
    (folder / "push.csv").write_text("t,force,torque [mN m]\n0,0.003,5\n2000,0.003,5\n")
    stated = of(units={"force": "kN", "t": "ms"})
    np.testing.assert_allclose(pushed(folder, stated), 3.0 * 4 / (2 * MASS), rtol=1e-8)
    kept = of("torque", units={"torque": "", "t": "ms"})
    np.testing.assert_allclose(pushed(folder, kept, "kept"), 5 * 4 / (2 * MASS), rtol=1e-8)
