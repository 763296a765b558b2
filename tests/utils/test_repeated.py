"""Functions that are traced once for all parts of a kind."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech import parts as jp
from jaxmech.utils.repeated import repeated


@repeated
def scaled(axis: Any, size: Any, x: Any) -> tuple[Any, Any]:
    """A vector along an axis, and the axis reversed."""
    return axis * size * x, -axis


def test_plain_results_stay_plain_where_only_patterns_matter() -> None:
    def total(x: Any) -> Any:
        vector, reverse = scaled(np.array([0.0, 1.0]), np.asarray(3.0), x)
        assert isinstance(reverse, np.ndarray)
        return vector[1] + reverse[1]

    value, slope = jax.jit(jax.value_and_grad(total))(2.0)
    assert value == 5.0
    assert slope == 3.0


def test_known_numbers_are_computed_at_once() -> None:
    vector, reverse = scaled(np.array([0.0, 1.0]), np.asarray(3.0), jnp.ones(2))
    np.testing.assert_array_equal(vector, [0.0, 3.0])
    np.testing.assert_array_equal(reverse, [0.0, -1.0])


def calls(jaxpr: Any) -> Iterator[int]:
    """The identities of the functions of a kind that a program calls."""
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("jaxpr")
        if hasattr(inner, "jaxpr"):
            if eqn.params.get("name") == "_traced":
                yield id(inner.jaxpr)
            yield from calls(inner.jaxpr)


def chain_of(n: int) -> Counter[int]:
    """How often M of a chain of bodies with different masses calls each function."""
    bodies = [
        jp.spatial_body(f"b{k}", mass=1 + 0.1 * k, inertia=(0.1, 0.2, 0.3), center=(0, 0, -0.5))
        for k in range(n)
    ]
    joints = [
        jp.revolute(
            f"j{k}", bodies[k - 1] if k else jp.ground, (0, 0, -1), bodies[k], (0, 0, 0),
            axis=((0, 1, 0), (1, 0, 0))[k % 2],
        )
        for k in range(n)
    ]  # fmt: skip
    system = jp.Mechanism(bodies, joints, [jp.gravity()], coordinates="joints").system
    state = system.arguments(jnp.ones(n), jnp.ones(n), 0.0, None)
    return Counter(calls(jax.make_jaxpr(system.dynamics.mass)(*state).jaxpr))


def test_the_number_of_traces_does_not_grow_with_that_of_bodies() -> None:
    short, long = chain_of(5), chain_of(9)
    assert len(long) == len(short)
    assert long.total() > short.total() + 4
