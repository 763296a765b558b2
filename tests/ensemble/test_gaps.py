"""Studies and failures of systems with stops and dry friction, whose steps choose themselves."""

from dataclasses import replace
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
    StudyEvent,
    Times,
    Uniform,
    failure_probability,
    open_results,
    run_study,
)
from tests.ensemble.studies import arrays, computed, replayed
from tests.unilateral.systems import SLED

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


ROUGH = """
import jaxmech as jm


def friction(p):
    return p["mu"]


floor = jm.Unilateral(
    lambda q, t, p: q[1], friction=friction, slip=lambda q, t, p: q[0], name="floor"
)
rail = jm.DryFriction(lambda q, v, t, p: v[2], static=lambda p: 9.81 * p["mu"], name="rail")
sleds = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - 9.81 * q[1], [floor, rail], coordinates=("x", "y", "z")
)
"""

SLIDES = """
model = "rough.py:sleds"
size = 12
block = 6
seed = 1

[times]
end = 1.0
saves = 5

[coordinates]
x = 0.0
y = 0.0
z = 0.0

[velocities]
x = 2.0
y = 0.0
z = 1.0

[parameters]
mu = { distribution = "uniform", low = 0.1, high = 0.9 }

[statistics]
far = { statistic = "probability", of = "x", above = 0.5 }
"""


@pytest.mark.slow
def test_a_study_draws_coefficients_of_friction(tmp_path: Path) -> None:
    run = computed(tmp_path, SLIDES, rough=ROUGH)
    stored = arrays(run)
    assert not stored["status"].any()
    g_mu, v = 9.81 * stored["parameter_mu"][:, None, None], np.array([2.0, 0.0, 1.0])
    t = np.minimum(stored["t"][None, :, None], v / g_mu)
    np.testing.assert_allclose(stored["q"], v * t - g_mu * t**2 / 2, atol=1e-12)
    far = (stored["q"][:, -1, 0] > 0.5).mean()
    assert 0 < far < 1
    assert open_results(run).statistics["far"]["probability"] == pytest.approx(far)
    np.testing.assert_array_equal(replayed(run, 7).values["q"], stored["q"][7])


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


@pytest.mark.slow
def test_a_study_puts_a_brake_on_and_takes_it_off(tmp_path: Path) -> None:
    events = {
        "on": StudyEvent(function=lambda q, v, t, p: t - 0.3, direction=1, on=("rub",)),
        "off": StudyEvent(function=lambda q, v, t, p: t - 0.7, direction=1, off=("rub",)),
    }
    study = Study(
        model=SLED, size=6, block=6, times=Times(end=1.0, saves=3), events=events,
        inactive=("rub",), coordinates={"x": Fixed(0.0)}, velocities={"x": Fixed(2.0)},
        parameters={"mu": Uniform(0.1, 0.9)},
    )  # fmt: skip
    for settings, brake in ((study, 0.4), (replace(study, events={}), 0.0)):
        run_study(settings, tmp_path / f"run{brake}", folder=tmp_path)
        stored = arrays(tmp_path / f"run{brake}")
        assert not stored["status"].any()
        slowed = 9.81 * stored["parameter_mu"]
        time = np.minimum(brake, 2.0 / slowed)
        left = 2.0 - slowed * time
        end = 0.6 + 2.0 * time - slowed * time**2 / 2 + left * (0.7 - time)
        np.testing.assert_allclose(stored["q"][:, -1, 0], end, rtol=1e-12)
