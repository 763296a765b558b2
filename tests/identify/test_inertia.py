"""`PhysicalInertia` on a rigid body that turns freely in space."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, System, simulate
from jaxmech.identify import PhysicalInertia, Recording, fit

TIMES = np.arange(41) / 20
TRUTH = np.array([[2.0, 0.1, -0.2], [0.1, 3.0, 0.3], [-0.2, 0.3, 4.0]])
TORQUE = jnp.array([0.5, -0.4, 0.6])  # in the axes of the body, known: it sets the scale


def spin(q: Any, v: Any) -> Any:
    """In the axes of the body, for angles of yaw, pitch and roll."""
    pitch, roll = q[1], q[2]
    return jnp.stack([
        v[2] - v[0] * jnp.sin(pitch),
        v[1] * jnp.cos(roll) + v[0] * jnp.cos(pitch) * jnp.sin(roll),
        -v[1] * jnp.sin(roll) + v[0] * jnp.cos(pitch) * jnp.cos(roll),
    ])  # fmt: skip


def _lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    w = spin(q, v)
    return 0.5 * w @ p["J"] @ w


def _torque(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jax.vjp(lambda v: spin(q, v), v)[1](TORQUE)[0]


BODY = System(_lagrangian, force=_torque, coordinates=("yaw", "pitch", "roll"))


def second_moments(J: Any) -> np.ndarray:
    """Of the mass: J = tr(S) 1 - S."""
    return np.trace(J) / 2 * np.eye(3) - np.asarray(J)


def recording(J: Any, v0: list[float]) -> Recording:
    sol = simulate(BODY, [0.0, 0.1, 0.0], v0, TIMES, {"J": J}, steps=FixedSteps(1))
    return Recording(TIMES, sol.q, [0.0, 0.1, 0.0], v0)


@pytest.mark.slow
def test_the_inertia_of_a_free_body_is_found_and_possible() -> None:
    recordings = [recording(TRUTH, [0.8, -0.3, 0.5]), recording(TRUTH, [-0.4, 0.6, 0.9])]
    bounds = {"J": PhysicalInertia()}
    found = fit(BODY, recordings, {"J": 2.5 * np.eye(3)}, bounds=bounds, steps=FixedSteps(1))
    assert found.names == ("J[0,0]", "J[1,0]", "J[1,1]", "J[2,0]", "J[2,1]", "J[2,2]")
    np.testing.assert_allclose(found.params["J"], TRUTH, atol=1e-7)
    np.testing.assert_array_equal(found.params["J"], found.params["J"].T)
    assert np.all(found.uncertainty.determined)

    impossible = np.diag([1.0, 1.5, 4.0])  # a body would need 4 <= 1 + 1.5
    nearest = fit(
        BODY,
        [recording(impossible, [0.8, -0.3, 0.5]), recording(impossible, [-0.4, 0.6, 0.9])],
        {"J": 2.5 * np.eye(3)},
        bounds=bounds,
        steps=FixedSteps(1),
    )
    assert np.linalg.eigvalsh(second_moments(nearest.params["J"])).min() > -1e-14  # flat
    assert nearest.errors.max() > 1e-3
