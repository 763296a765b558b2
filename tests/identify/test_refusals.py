"""What `fit` refuses: the argument, the recording and the remedy are named."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, System
from jaxmech.identify import Recording, fit
from tests.identify.swings import BEGIN, CARTESIAN, FREE, SWING, TIMES, angle, on_the_rod, swings

GOOD = swings()
FIRST = GOOD[0]
NAN = np.nan


def slack(q0: Any, v0: Any, p: Any) -> Any:
    """A state that violates the length of the rod."""
    return 1.1 * p["l"] * jnp.stack([jnp.sin(q0[0]), -jnp.cos(q0[0])]), jnp.zeros(2)


def still_an_angle(q0: Any, v0: Any, p: Any) -> Any:
    return q0, v0


def off_the_rod(theta: float, length: float, **fields: Any) -> Recording:
    q0, v0 = on_the_rod(theta, 0.0, length)
    return replace(FIRST, q0=q0, v0=v0, **fields)


@pytest.mark.parametrize(
    ("recording", "start", "message"),
    [
        (
            off_the_rod(0.8, 0.45),
            None,
            "Recording 1 begins off the constraints by more than its noise: q0.* check q0 and v0",
        ),
        (off_the_rod(0.8, 0.401, start_sd=(1e-4, 1.0)), None, "more than 0.0005"),
        (replace(off_the_rod(0.8, 0.4), v0=np.array([1.0, -1.0])), None, r"noise: v0\["),
        (FIRST, slack, "begins off the constraints: 'rod' .* `start` must return a consistent"),
        (FIRST, still_an_angle, r"`start` must return q and v of shape \(2,\), but returns \(1,\)"),
        (FIRST, None, r"`q0` of recording 1 must have shape \(2,\) for the coordinates x, y"),
    ],
)
def test_invalid_initial_states(recording: Recording, start: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(
            CARTESIAN, recording, BEGIN, observe=angle, start=start, free=FREE,
            initial_states="fixed", steps=FixedSteps(1),
        )  # fmt: skip


def test_an_initial_state_off_by_its_noise_is_accepted() -> None:
    """It is moved onto the rod, and refused only by measurements that are too few."""
    few = np.where(TIMES < 0.03, TIMES, NAN)
    near = off_the_rod(0.8, 0.401, start_sd=(1e-3, 1.0), observed=few)
    guess = replace(off_the_rod(0.8, 0.45, observed=few), v0=np.array([1.0, -1.0]))
    for start in (near, guess):
        with pytest.raises(ValueError, match="but there are 2 for 5"):
            fit(CARTESIAN, start, BEGIN, observe=angle, free=["c", "g", "l"], steps=FixedSteps(1))
    with pytest.raises(ValueError, match="but there are 2 for 3"):
        fit(
            CARTESIAN, near, BEGIN, observe=angle, free=["c", "g", "l"], initial_states="fixed",
            steps=FixedSteps(1),
        )  # fmt: skip
    with pytest.raises(ValueError, match="Recording 1 begins off the constraints"):
        fit(
            CARTESIAN,
            off_the_rod(0.8, 2.0),
            {**BEGIN, "l": 0.1},
            observe=angle,
            free=FREE,
            steps=FixedSteps(1),
        )


def _runaway(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["c"] * v**3


RUNAWAY = System(SWING.lagrangian, force=_runaway, coordinates=("theta",))


def test_a_motion_that_cannot_be_simulated() -> None:
    begin = BEGIN | {"c": 50.0}
    with pytest.raises(ValueError, match=r"cannot be simulated .* parameters at the start .*step"):
        fit(RUNAWAY, replace(FIRST, v0=np.array([9.0])), begin, free=FREE, steps=FixedSteps(1))


def _free_mass(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["m"] * SWING.lagrangian(q, v, t, p)


@pytest.mark.slow
def test_undetermined_parameters_are_reported() -> None:
    """Without friction the mass of a pendulum has no effect, and only g / l has one."""
    system = System(_free_mass, coordinates=("theta",))
    begin = {"m": 2.0, "l": 0.5, "g": 9.0}
    found = fit(system, swings(params={"c": 0.0}), begin, steps=FixedSteps(1))
    assert found.names == ("g", "l", "m")
    np.testing.assert_allclose(found.params["g"] / found.params["l"], 9.81 / 0.5, rtol=1e-6)
    assert not np.any(found.uncertainty.determined)
    assert found.warnings
    ratio = found.function(lambda p: p["g"] / p["l"])
    assert 0 < ratio.standard_error < 1e-2
    assert np.isinf(found.function(lambda p: p["m"]).standard_error)
    card = str(found.identifiability)
    assert "m +1 % leaves every residual unchanged" in card
    assert "g +1 %, l +1 % leaves every residual unchanged" in card
