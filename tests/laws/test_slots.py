"""Friction on several rows against every combination of signs, solved by numpy.

A bar in the plane with two pins, each in a straight slot: two rows, whose multipliers are the
forces of the slots on the pins. Coulomb friction at a pin pulls against its sliding.
"""

import itertools
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, Status, System, acceleration, simulate


def pins(q: Any) -> Any:
    """The two pins, (2, 2)."""
    arm = jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    return jnp.stack([q[:2] + arm, q[:2] - arm])


def across(p: Any) -> Any:
    return jnp.stack([-jnp.sin(p["slots"]), jnp.cos(p["slots"])], 1)


def along(p: Any) -> Any:
    return jnp.stack([jnp.cos(p["slots"]), jnp.sin(p["slots"])], 1)


def slots(q: Any, t: Any, p: Any) -> Any:
    return (across(p) * pins(q)).sum(1) - p["offsets"]


def sliding(q: Any, v: Any, p: Any) -> Any:
    """Unit forces against the sliding of the pins, (2, 3)."""
    speed = (along(p) * jax.jvp(pins, (q,), (v,))[1]).sum(1)
    J = jax.jacfwd(lambda q: (along(p) * pins(q)).sum(1))(q)
    return -jnp.tanh(speed / 1e-6)[:, None] * J


def each(q: Any, v: Any, multipliers: Any, t: Any, p: Any) -> Any:
    return p["mu"] * (jnp.abs(multipliers)[:, None] * sliding(q, v, p)).sum(0)


def summed(q: Any, v: Any, multipliers: Any, t: Any, p: Any) -> Any:
    """Friction depends on the size of the sum of both multipliers."""
    return p["mu"] * jnp.abs(multipliers.sum()) * sliding(q, v, p).sum(0)


def bar(nonideal: Any) -> System:
    return System(
        lambda q, v, t, p: 0.5 * v @ (jnp.stack([1.0, 1.0, p["J"]]) * v) + p["Q"] @ q,
        [Holonomic(slots, "slots")],
        coordinates=("x", "y", "angle"),
        nonideal=nonideal,
    )


def drawn(count: int, mu: float, seed: int) -> tuple[Any, Any, Any]:
    """States with velocities that the slots allow, and parameters, all random."""
    draw = np.random.default_rng(seed)
    q = draw.uniform(-np.pi, np.pi, (count, 3))
    p = {
        "slots": draw.uniform(-np.pi, np.pi, (count, 2)),
        "offsets": np.zeros((count, 2)),
        "Q": draw.normal(size=(count, 3)),
        "J": draw.uniform(0.05, 1.0, count),
        "mu": np.full(count, mu),
    }

    def consistent(q: Any, p: Any, w: Any) -> Any:
        A = jax.jacfwd(lambda q: slots(q, 0.0, p))(q)
        return slots(q, 0.0, p), w * jnp.cross(A[0], A[1])

    p["offsets"], v = jax.vmap(consistent)(q, p, draw.choice([-1.0, 1.0], count))
    return q, v, p


KINDS = {"each": each, "summed": summed}


@cache
def many(kind: str) -> Any:
    """Solve a batch of states of the bar."""
    system = bar(KINDS[kind])

    def one(q: Any, v: Any, p: Any) -> Any:
        eom = system.equations(q, v, 0.0, p)
        motion = acceleration(system, q, v, 0.0, p)
        return eom.M, eom.Q, eom.A, eom.b, sliding(q, v, p), motion.multipliers, motion.converged

    return jax.jit(jax.vmap(one))


def judged(kind: str, mu: float, count: int, seed: int = 0) -> dict[str, int]:
    """Count the states with one solution, the others, and the wrong reports."""
    states = drawn(count, mu, seed)
    *equations, multipliers, converged = map(np.asarray, many(kind)(*states))
    found, valid = by_signs(kind, mu, *equations)
    number = valid.sum(0)
    best = found[valid.argmax(0), np.arange(count)]
    error = np.abs(best - multipliers).max(1) > 1e-7 * (1 + np.abs(best).max(1))
    return {
        "one solution": int((number == 1).sum()),
        "none or several": int((number != 1).sum()),
        "silent": int((converged & (number != 1)).sum()),
        "false": int((~converged & (number == 1)).sum()),
        "wrong": int((converged & (number == 1) & error).sum()),
    }


def by_signs(
    kind: str, mu: float, M: Any, Q: Any, A: Any, b: Any, d: Any
) -> tuple[np.ndarray, np.ndarray]:
    """A M^-1 (Q + A^T l + C(l)) = b for each combination of signs: l, and whether it has them."""
    W = np.linalg.solve(M, np.swapaxes(A, 1, 2)).swapaxes(1, 2)  # A M^-1
    right = b - (W @ Q[..., None])[..., 0]
    found, valid = [], []
    for signs in map(np.array, itertools.product([-1.0, 1.0], repeat=2 if kind == "each" else 1)):
        rows = d if kind == "each" else np.repeat(d.sum(1, keepdims=True), 2, axis=1)
        whole = W @ np.swapaxes(A + mu * signs[:, None] * rows, 1, 2)
        multipliers = np.linalg.solve(whole, right[..., None])[..., 0]
        pressing = multipliers if kind == "each" else multipliers.sum(1, keepdims=True)
        found.append(multipliers)
        valid.append((signs * pressing >= 0).all(1))
    return np.stack(found), np.stack(valid)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mu"), [("each", 0.7), ("summed", 0.7)])
def test_most_states_without_a_single_solution_are_told_apart(kind: str, mu: float) -> None:
    """Newton's method misses a few; what it finds is right."""
    counted = judged(kind, mu, 600)
    assert counted["none or several"] > 5
    assert counted["wrong"] == 0
    assert counted["silent"] <= 0.25 * counted["none or several"]
    assert counted["false"] <= 0.05 * counted["one solution"]


@pytest.mark.slow
def test_derivatives_with_friction_on_two_rows() -> None:
    """Against central differences, at states with one solution on each combination of signs."""
    system, (q, v, p) = bar(each), drawn(40, 0.4, 1)

    @jax.jit
    @jax.vmap
    def along(q: Any, v: Any, p: Any) -> Any:
        def push(mu: Any) -> Any:
            motion = acceleration(system, q, v, 0.0, {**p, "mu": mu})
            return motion.qdd.sum(), motion

        return jax.vmap(jax.value_and_grad(push, has_aux=True))(0.4 + 1e-6 * jnp.arange(-1.0, 2.0))

    (total, motion), slope = along(q, v, p)
    good = np.asarray(motion.converged[:, 1])
    assert len(np.unique(np.sign(motion.multipliers[good, 1]), axis=0)) == 4
    differences = (total[:, 2] - total[:, 0]) / 2e-6
    np.testing.assert_allclose(slope[good, 1], differences[good], rtol=1e-5, atol=1e-5)


def test_a_jammed_bar_has_a_status() -> None:
    """The status is set where there is no solution, or several, and only there."""
    system, (q, v, p) = bar(each), drawn(600, 0.7, 2)
    run = jax.jit(
        jax.vmap(lambda q, v, p: simulate(system, q, v, [0.0, 1e-5], p, steps=FixedSteps(1)))
    )
    good = np.asarray(many("each")(q, v, p)[-1])
    status = np.asarray(run(q, v, p).status)
    assert 0 < (~good).sum() < 200
    assert set(status[~good]) == {Status.NONIDEAL_FAILED}
    assert (status[good] == Status.OK).mean() > 0.98  # the others jam within the step
