"""Functions that read coordinates by name."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

PARAMS = {"k": 3.0, "c": 0.2}


def pair(*forces: Any, **options: Any) -> jp.Mechanism:
    """Two wheels on one axle, in the coordinates `a.angle` and `b.angle` in this order."""
    wheels = [jp.planar_body(name, mass=1.0, inertia=0.1) for name in ("left", "right")]
    joints = [
        jp.revolute(name, jp.ground, (0, 0), wheel, (0, 0))
        for name, wheel in zip("ab", wheels, strict=True)
    ]
    return jp.Mechanism(wheels, joints, forces, PARAMS, **options)


def by_index(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([jnp.zeros(()), -p["k"] * (q[1] - q[0]) ** 3 - p["c"] * v[1]])


def test_functions_that_are_given_later_read_by_name() -> None:
    system = pair(by_index).system

    def apart(q: Any, v: Any, t: Any, p: Any) -> Any:
        x = system.named(q, v)
        return x["b.angle"] - x["a.angle"] - 0.5

    event = jm.Event(apart, direction=1, terminal=True)
    start = jnp.zeros(2), jnp.array([0.0, 2.0])
    sol = jm.simulate(system, *start, [0.0, 2.0], PARAMS, steps=jm.FixedSteps(50), events=event)
    assert sol.status == jm.Status.STOPPED
    x = system.named(sol.q, sol.v)
    assert [*x] == [*sol.names]
    np.testing.assert_allclose((x["b.angle"] - x["a.angle"])[-1], 0.5, atol=1e-9)
    np.testing.assert_array_equal(x["b.angle.rate"], sol["b.angle.rate"])
    assert [*system.named(sol.q)] == ["a.angle", "b.angle"]
