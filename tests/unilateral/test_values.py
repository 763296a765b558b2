"""Members of a batch with restitutions and limits of friction that no contact can have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.status import Status


def _position(q: Any, t: Any, p: Any) -> Any:
    return q[0]


BLOCK = jm.System(
    lambda q, v, t, p: v @ v / 2 - 2 * q @ q,
    [
        jm.Unilateral(_position, restitution=lambda p: p["e"], name="stop"),
        jm.DryFriction(
            _position, static=lambda p: p["mu"], kinetic=lambda p: p["kinetic"], name="rub"
        ),
    ],
    coordinates=("x",),
)
VALUES = jnp.array([[0.5, 0.6, 0.6], [1.2, 0.6, 0.6], [0.5, -0.1, -0.1], [0.5, 0.6, 0.7]])


def _status(values: Any) -> Any:
    e, mu, kinetic = values
    params = {"e": e, "mu": mu, "kinetic": kinetic}
    steps = jm.FixedSteps(20)
    return jm.simulate(BLOCK, [1.0], [0.0], [0.0, 1.0, 2.0], params, steps=steps).status


def test_a_limit_of_friction_is_no_output_of_a_controller() -> None:
    """It would hold as before the run, when nothing is given out."""
    pads = jm.DryFriction(_position, static=lambda p: p["brake"], name="pads")
    car = jm.System(lambda q, v, t, p: v @ v / 2, [pads], coordinates=("x",))
    brake = jm.Controller(lambda x, memory, t, p: (2.0, memory), period=0.1, name="brake")
    with pytest.raises(ValueError, match="`static` of 'pads' must be constant in a run"):
        jm.simulate(jm.controlled(car, brake), [0.0], [1.0], [0.0, 1.0], {})


def test_members_with_values_that_no_contact_has_are_not_ok() -> None:
    wrong = Status.CONTACT_VALUE
    statuses = jax.jit(jax.vmap(_status))(VALUES)
    np.testing.assert_array_equal(statuses, [Status.OK, wrong, wrong, wrong])
    with pytest.raises(ValueError, match="must be finite and not negative, but is -0"):
        jax.vmap(_status)(jnp.tile(VALUES[2], (900, 1)))
