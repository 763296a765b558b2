"""A study of a system with a state of first order, by the name of the state."""

from pathlib import Path

import numpy as np
import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import Study
from jaxmech.ensemble.run import run_study
from tests.ensemble.studies import arrays

STUDY = """
model = "cooling.py:body"
size = 4
block = 4

[times]
end = 1.0
saves = 3

[steps]
per_save = 32

[coordinates]
x = 0.0

[velocities]
x = 1.0
T = { distribution = "uniform", low = 300.0, high = 400.0 }

[parameters]
rate = 2.0

[events]
cold = { of = "T", level = 150.0, direction = -1, keep = 1 }

[statistics]
heat = { statistic = "moments", of = "T" }
"""
BODY = """
import jaxmech as jm

body = jm.System(
    lambda q, v, t, p: 0.5 * v[0] ** 2,
    coordinates=("x",), states=("T",), rates=lambda q, v, t, p: -p["rate"] * v[1],
)
"""


@pytest.mark.slow
def test_a_study_draws_observes_and_watches_a_state(tmp_path: Path) -> None:
    (tmp_path / "cooling.py").write_text(BODY)
    (tmp_path / "study.toml").write_text(STUDY)
    summary = run_study(read(tmp_path / "study.toml", Study), tmp_path / "run", folder=tmp_path)
    found = arrays(tmp_path / "run")
    first = found["v"][:, 0, 1]
    assert ((first >= 300.0) & (first <= 400.0)).all()
    np.testing.assert_allclose(found["v"][:, -1, 1], first * np.exp(-2.0), rtol=1e-6)
    np.testing.assert_allclose(found["cold_times"][:, 0], np.log(first / 150.0) / 2.0, rtol=1e-5)
    heat = summary["statistics"]["heat"]["mean"]
    np.testing.assert_allclose(heat, found["v"][:, :, 1].mean(0))
