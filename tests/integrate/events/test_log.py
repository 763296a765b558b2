"""Many occurrences of events: they are stored in memory, whatever their number is."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.compiler import explain
from jaxmech.utils.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn
from jaxmech.utils.traces import DelayedJaxpr

G, KEPT = 9.81, 12
POLICIES = [
    {"steps": jm.FixedSteps(400)},
    {"method": jm.DormandPrince5(), "steps": jm.Adaptive(rtol=1e-9, max_steps=2_000)},
]
TS = np.linspace(0.0, 1.0, 3)
both_policies = pytest.mark.parametrize("policies", POLICIES, ids=["fixed", "adaptive"])


def _lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
    return 0.5 * (v @ v - (jnp.pi * p["rate"] * q[0]) ** 2) - G * q[1]


def _raised(q: Array, v: Array, t: Array, p: Any) -> tuple[Array, Array]:
    return q + jnp.stack([0.0 * t, p["rate"]]), v


# A coordinate that passes zero at all t = k / rate, and one that falls.
SYSTEM = jm.System(_lagrangian, coordinates=("x", "y"))
START = jnp.zeros(2), jnp.array([1.0, 0.0])


def passes(
    rate: Any, policies: Any, keep: int = KEPT, jumps: bool = False
) -> jm.integrate.EventRecord:
    """The passages of x through zero, at which y is raised if it jumps."""
    change = jm.Transition(_raised) if jumps else None
    event = jm.Event(lambda q, v, t, p: q[0], keep=keep, transition=change, name="pass")
    sol = jm.simulate(SYSTEM, *START, TS, {"rate": rate}, **policies, events=event, throw=False)
    assert sol.events is not None
    return sol.events["pass"]


@pytest.mark.slow
@both_policies
def test_stored_events_of_a_batch(policies: Any) -> None:
    rates = np.array([10.3, 20.4, 40.7])
    found = jax.jit(jax.vmap(lambda rate: passes(rate, policies)))(rates)
    np.testing.assert_array_equal(found.count, [10, 20, 40])
    assert found.t.shape == (3, KEPT)
    assert found.q.shape == (3, KEPT, 2)
    for k, rate in enumerate(rates):
        stored = min(int(found.count[k]), KEPT)
        t = np.arange(1, stored + 1) / rate
        np.testing.assert_allclose(found.t[k, :stored], t, rtol=1e-5)
        np.testing.assert_allclose(found.q[k, :stored, 0], 0.0, atol=1e-12)
        height = -G * found.t[k, :stored] ** 2 / 2
        np.testing.assert_allclose(found.q[k, :stored, 1], height, rtol=1e-9)
        np.testing.assert_allclose(
            found.v[k, :stored, 0], (-1.0) ** np.arange(1, stored + 1), rtol=1e-4
        )
        for rows in (found.t, found.q, found.v):
            assert np.isnan(rows[k, stored:]).all()
    assert found.q_after is None


@pytest.mark.slow
@both_policies
def test_derivatives_of_an_event_that_comes_late(policies: Any) -> None:
    """The tenth event, of more than the eight that are kept by default."""

    def state(rate: Array) -> Array:
        found = passes(rate, policies, jumps=True)
        assert found.q_after is not None
        return jnp.concatenate([found.t[9:10], found.q[9], found.v[9], found.q_after[9]])

    rates = np.array([10.3, 14.2])
    forward = jax.jit(jax.vmap(jax.jacfwd(state)))(rates)
    reverse = jax.jit(jax.vmap(jax.jacrev(state)))(rates)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-10)
    for slopes, rate in zip(forward, rates, strict=True):
        t, late = 10 / rate, -10 / rate**2
        # Raised nine times before it, and once more at it.
        y, after = 9 - G * t * late, 10 - G * t * late
        wanted = [late, 0.0, y, 0.0, -G * late, 0.0, after]
        np.testing.assert_allclose(slopes, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@both_policies
def test_code_does_not_grow_with_the_number_of_stored_events(policies: Any) -> None:
    def time(rate: Array, keep: int) -> Array:
        return passes(rate, policies, keep).t[2]

    rates = jnp.array([10.3, 14.2])
    for derivative in (jax.jacfwd, jax.grad):
        few, many = (
            explain(derivative(lambda rate, keep=keep: time(rate, keep)), rates)
            for keep in (40, 30_000)
        )
        assert [part.reason for part in many.parts] == [""] * len(few.parts)
        # Comparisons with the number of rows, but nothing for each row.
        for a, b in zip(few.parts, many.parts, strict=True):
            assert abs(a.operations - b.operations) <= 25
            assert abs(a.requested - b.requested) <= 20


def _equations(jaxpr: Jaxpr, in_loop: bool = False) -> Iterator[JaxprEqn]:
    """All equations within loops."""
    for eqn in jaxpr.eqns:
        content = [
            x.closed if isinstance(x, DelayedJaxpr) else x
            for x in jax.tree.leaves(list(eqn.params.values()))
        ]
        inner = [x for x in content if isinstance(x, ClosedJaxpr | Jaxpr)]
        if in_loop and not inner:
            yield eqn
        within = in_loop or eqn.primitive.name in ("scan", "while")
        for one in inner:
            yield from _equations(one.jaxpr if isinstance(one, ClosedJaxpr) else one, within)


@pytest.mark.slow
@both_policies
def test_steps_do_not_copy_the_stored_events(policies: Any) -> None:
    keep = 977
    with jm.compiler.off():
        program = jax.make_jaxpr(lambda rate: passes(rate, policies, keep).t)(jnp.asarray(10.3))
    writing = [
        eqn.primitive.name
        for eqn in _equations(program.jaxpr)
        if any(getattr(x.aval, "shape", ())[:1] == (keep,) for x in (*eqn.invars, *eqn.outvars))
    ]
    assert writing == ["write_row"]
