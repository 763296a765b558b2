"""Forces and functions that read coordinates by name are those that read them by index."""

from typing import Any

import jax
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


def shaft(x: Any, t: Any, p: Any) -> Any:
    """A torque on one wheel alone that depends on both."""
    twist = x["b.angle"] - x["a.angle"]
    return {"b.angle": -p["k"] * twist**3 - p["c"] * x["b.angle.rate"]}


def by_index(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([jnp.zeros(()), -p["k"] * (q[1] - q[0]) ** 3 - p["c"] * v[1]])


def test_a_force_by_names_is_the_one_by_indices() -> None:
    starts = jnp.array([[0.3, -0.2], [0.1, 0.4]])

    def end(mechanism: jp.Mechanism) -> Any:
        def last(q: Any, k: Any) -> Any:
            v, p = jnp.array([1.0, 2.0]), {**PARAMS, "k": k}
            steps = jm.FixedSteps(4)
            return jm.simulate(mechanism.system, q, v, [0.0, 0.5], p, steps=steps).q[-1]

        batch = jax.jit(jax.vmap(last, in_axes=(0, None)))
        slope = jax.grad(lambda k: last(starts[0], k).sum())
        return batch(starts, 3.0), slope(3.0)

    named = pair(jp.coordinate_force("shaft", shaft))
    assert "coordinate force 'shaft'" in repr(named)
    for mine, theirs in zip(end(named), end(pair(by_index)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_force_reads_states_and_rates_in_spins() -> None:
    ball = jp.spatial_body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1))
    seen = []

    def push(x: Any, t: Any, p: Any) -> Any:
        seen.append([*x])
        return {"ball.x": p["k"] * x["current"] - p["c"] * x["ball.x.rate"]}

    free = jp.Mechanism(
        [ball], forces=[jp.coordinate_force("push", push)], params=PARAMS, velocities="spins",
        states=("current",), rates=lambda q, v, t, p: -v[-1:],
    )  # fmt: skip
    q, v = jnp.zeros(8).at[3].set(1.0), jnp.array([2.0, 0, 0, 0, 0, 0, 5.0])
    force = free.system.dynamics.applied_force(q, v, jnp.zeros(()), PARAMS)
    np.testing.assert_allclose(force, [3 * 5 - 0.2 * 2, 0, 0, 0, 0, 0, 0])
    assert "ball.e0.rate" in seen[-1]
    assert "integral of current" not in seen[-1]


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
