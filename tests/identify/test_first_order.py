"""Parameters of a motor, whose current is a state of first order, from recordings."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

TRUE = {"J": 0.02, "k": 0.5, "c": 0.01, "u": 6.0, "R": 1.2, "L": 0.05}
GUESS = TRUE | {"R": 1.0, "L": 0.03, "k": 0.6, "J": 0.03}
TS = np.linspace(0.0, 0.5, 51)

MOTOR = jm.System(
    lambda q, v, t, p: 0.5 * p["J"] * v[0] ** 2,
    force=lambda q, v, t, p: jnp.stack([p["k"] * v[1] - p["c"] * v[0]]),
    coordinates=("angle",), states=("current",),
    rates=lambda q, v, t, p: (p["u"] - p["R"] * v[1] - p["k"] * v[0]) / p["L"],
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("initial_states", ["free", "fixed"])
def test_a_motor_is_found_from_its_angle_and_its_current(initial_states: Any) -> None:
    sol = jm.simulate(MOTOR, [0.0, 0.0], [0.0, 0.0], TS, TRUE)
    seen = np.stack([sol.q[:, 0], sol.v[:, 1]], axis=1)  # what `observe` returns by default
    recording = jm.Recording(TS, seen, [0.0, 0.0], [0.0, 0.0])
    found = jm.fit(
        MOTOR, recording, GUESS, free=["R", "L", "k", "J"], initial_states=initial_states
    )
    assert found.converged
    for name in ("R", "L", "k", "J"):
        np.testing.assert_allclose(found.params[name], TRUE[name], rtol=2e-5)
