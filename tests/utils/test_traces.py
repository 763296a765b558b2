"""Functions that are traced once for all parts of a kind."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.utils.traces import repeated


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


def functions(jaxpr: Any, kept: dict[int, Any]) -> dict[int, Any]:
    """A program and all functions that it calls, each of them once, by their identities."""
    kept[id(jaxpr)] = jaxpr
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("jaxpr")
        if hasattr(inner, "jaxpr") and id(inner.jaxpr) not in kept:
            functions(inner.jaxpr, kept)
    return kept


def equations_of_chain(n: int, kind: str) -> Counter[str]:
    """The equations that are traced for M of a chain of bodies with different masses, by name."""
    bodies = [
        jp.spatial_body(f"b{k}", mass=1 + 0.1 * k, inertia=(0.1, 0.2, 0.3), center=(0, 0, -0.5))
        for k in range(n)
    ]

    def joint(k: int) -> Any:
        ends = (bodies[k - 1] if k else jp.ground, (0, 0, -1 - 0.1 * k)), (bodies[k], (0, 0, 0))
        axis = ((0, 1, 0), (1, 0, 0))[k % 2]
        if kind == "universal":
            return jp.universal(f"j{k}", *ends[0], *ends[1], axis_a=axis, axis_b=(0, 0, 1))
        return jp.revolute(f"j{k}", *ends[0], *ends[1], axis=axis)

    joints = [joint(k) for k in range(n)]
    system = jp.Mechanism(bodies, joints, [jp.gravity()], coordinates="joints").system
    q = jnp.ones(system.n)
    state = system.arguments(q, q, 0.0, None)
    traced = functions(jax.make_jaxpr(system.dynamics.mass)(*state).jaxpr, {}).values()
    return Counter(eqn.primitive.name for jaxpr in traced for eqn in jaxpr.eqns)


@pytest.mark.parametrize("kind", ["revolute", "universal"])
def test_the_number_of_traces_does_not_grow_with_that_of_bodies(kind: str) -> None:
    short, long = equations_of_chain(5, kind), equations_of_chain(9, kind)
    assert long["cos"] == short["cos"]
    assert long["jit"] > short["jit"] + 4


def oscillator(k: float, default: Any = 1.0) -> jm.System:
    return jm.System(
        lambda q, v, t, p, scale=default: 0.5 * scale * v @ v - 0.5 * p["k"] * q @ q,
        [jm.Holonomic(lambda q, t, p: q[1:], "line")],
        force=lambda q, v, t, p: -k * v,
        coordinates=("x", "y"),
    )


def test_systems_by_the_same_code_are_equal_up_to_the_variables_that_they_read() -> None:
    first, second = oscillator(0.1), oscillator(0.1)
    assert second.lagrangian is first.lagrangian
    assert second.constraints[0].fn is first.constraints[0].fn
    assert second.force is not first.force  # another variable, which may change alone


@pytest.mark.parametrize("pair", [(0.0, -0.0), (1, 1.0), (1, True), ([1.0], [1.0])])
def test_defaults_are_compared_with_their_types(pair: tuple[Any, Any]) -> None:
    functions = [oscillator(0.1, x).lagrangian for x in pair]
    assert functions[0] is not functions[1]


def test_a_fit_with_the_observation_of_before_compiles_nothing() -> None:
    traced = []

    def note(q: Any) -> Any:
        traced.append(1)
        return q[:1]

    system = oscillator(0.0)
    ts = jnp.linspace(0.0, 1.0, 11)
    start = jnp.array([1.0, 0.0]), jnp.zeros(2)
    x = jm.simulate(system, *start, ts, {"k": 4.0}).q[:, :1]
    for _ in range(2):
        before, recording = len(traced), jm.Recording(ts, x, *start)
        found = jm.fit(system, recording, {"k": 3.0}, observe=lambda q, v, t, p: note(q))
        assert found.params["k"] == pytest.approx(4.0, rel=1e-5)
    assert len(traced) - before < before / 3
