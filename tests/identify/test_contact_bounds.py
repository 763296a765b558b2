"""Limits of friction and restitutions keep to the values that they can have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify.parameters import contact_bounds


def _position(q: Any, t: Any, p: Any) -> Any:
    return q[0]


PARAMS = {"e": 0.3, "k": 4.0, "mu": 0.6, "N": 1.0, "extra": 0.0}
# A door of 1 kg m^2 with a spring: it rubs, and its frame is a stop.
DOOR = jm.System(
    lambda q, v, t, p: v @ v / 2 - p["k"] * q @ q / 2,
    [
        jm.Unilateral(_position, restitution=lambda p: p["e"], name="frame"),
        jm.DryFriction(_position, static=lambda p: p["mu"] * p["N"] + p["extra"] ** 2, name="rub"),
    ],
    coordinates=("angle",),
)


def test_numbers_that_decide_a_limit_or_a_restitution_are_bounded() -> None:
    bounds = contact_bounds(DOOR, PARAMS)
    assert {name: (b.low, b.high) for name, b in bounds.items()} == {
        "e": (0.0, 1.0), "mu": (0.0, np.inf), "N": (0.0, np.inf),
    }  # fmt: skip
    assert "e" not in contact_bounds(DOOR, {**PARAMS, "e": 1.0})  # a start on a bound
    assert contact_bounds(DOOR, {**PARAMS, "mu": 1})["mu"].low == 0.0
    some = {name: value for name, value in PARAMS.items() if name != "N"}  # N is recorded
    assert contact_bounds(DOOR, some).keys() == {"e"}


@pytest.mark.slow
def test_a_fit_does_not_leave_through_negative_friction() -> None:
    ts = jnp.linspace(0.0, 6.0, 61)
    free = {name: PARAMS[name] for name in ("e", "k", "mu")}
    others = {"N": 1.0, "extra": 0.0}
    sol = jm.simulate(DOOR, [1.4], [0.0], ts, {**free, **others})
    noise = 0.005 * jax.random.normal(jax.random.key(0), sol.q.shape)
    recording = jm.Recording(ts, sol.q + noise, [1.4], [0.0])
    start = {"e": 0.5, "k": 5.0, "mu": 0.3, **others}
    fit = jm.fit(DOOR, recording, start, free=list(free))
    assert fit.params["mu"] == pytest.approx(0.6, abs=0.1)
    assert fit.params["e"] == pytest.approx(0.3, abs=0.03)
    assert fit.params["k"] == pytest.approx(4.0, abs=0.3)
