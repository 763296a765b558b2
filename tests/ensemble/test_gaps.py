"""Studies and failures of systems with stops and dry friction, whose steps choose themselves."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import jaxmech as jm
from jaxmech.ensemble import (
    Failure,
    Fixed,
    Normal,
    Study,
    Times,
    failure_probability,
)
from tests.ensemble.studies import arrays, computed

CART = """
import jaxmech as jm

wall = jm.Unilateral(lambda q, t, p: 1.0 - q[0], restitution=lambda p: p["e"], name="wall")
cart = jm.System(lambda q, v, t, p: 0.5 * v @ v, [wall], coordinates=("x",))
"""

STUDY = """
model = "cart.py:cart"
size = 12
block = 6

[times]
end = 2.0
saves = 5

[coordinates]
x = 0.0

[velocities]
x = { distribution = "uniform", low = 0.1, high = 2.0 }

[parameters]
e = { distribution = "uniform", low = 0.2, high = 0.9 }
"""


def test_a_study_with_a_stop_needs_no_other_keys(tmp_path: Path) -> None:
    stored = arrays(computed(tmp_path, STUDY, cart=CART))
    assert not stored["status"].any()
    v, e, t = stored["v"][:, 0], stored["parameter_e"][:, None], stored["t"][None]
    beyond = np.maximum(v * t - 1.0, 0.0)
    np.testing.assert_allclose(stored["q"][..., 0], v * t - (1 + e) * beyond, atol=1e-9)
    assert 0 < (beyond[:, -1] > 0).sum() < 12


def _wall(q, t, p):  # type: ignore[no-untyped-def]
    return 1.0 - q[0]


def _kinetic(q, v, t, p):  # type: ignore[no-untyped-def]
    return 0.5 * v @ v


def _restitution(p):  # type: ignore[no-untyped-def]
    return p["e"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("e", "failure", "exact"),
    [
        (0.5, Failure(of="x", below=-0.2, method="form"), stats.norm.sf(3.5)),
        (0.0, Failure(of="x", below=0.9, when="end", method="form"), stats.norm.cdf(-2.75)),
    ],
    ids=["rebound", "missed"],
)
def test_failures_by_a_contact(e: float, failure: Failure, exact: float) -> None:
    """From x = 0 at a speed v the cart is at 1 - e (2 v - 1) after two seconds, or at 2 v."""
    wall = jm.Unilateral(_wall, restitution=_restitution, name="wall")
    study = Study(
        model=jm.System(_kinetic, [wall], coordinates=("x",)), size=256, block=256,
        times=Times(end=2.0, saves=5), coordinates={"x": Fixed(0.0)},
        velocities={"x": Normal(mean=1.0, sd=0.2)}, parameters={"e": Fixed(e)},
    )  # fmt: skip
    result = failure_probability(study, failure=failure)
    assert result.probability == pytest.approx(exact, rel=1e-4)
