"""`acceleration` of whole systems: sign and size of the multipliers, diagnostics."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Acceleration, System, acceleration
from jaxmech.compiler import off
from jaxmech.laws import LDL, QR, SVD, UdwadiaKalaba
from tests.small import PENDULUM


def quadratic(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ (p["M"] @ v) + p["Q"] @ q


# A system whose M, Q, A and b are its parameters.
GIVEN = System(
    quadratic,
    [Acceleration(lambda q, v, a, t, p: p["A"] @ a - p["b"], "given")],
    coordinates=("x", "y", "z"),
)


def given(rank: int, *, consistent: bool = True) -> dict[str, Any]:
    draw = np.random.default_rng(rank)
    F, A = draw.normal(size=(3, 3)), draw.normal(size=(4, rank)) @ draw.normal(size=(rank, 3))
    b = A @ draw.normal(size=3) if consistent else draw.normal(size=4)
    return {"M": F @ F.T + np.eye(3), "Q": draw.normal(size=3), "A": A, "b": b}


@jax.jit
def by_all_solvers(p: Any) -> Any:
    rest = np.zeros(3)
    laws = [UdwadiaKalaba(solver) for solver in (LDL(), QR(), SVD())]
    return [acceleration(GIVEN, rest, rest, 0.0, p, formulation=law) for law in laws]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_multipliers_are_the_smallest_and_push_the_system(rank: int) -> None:
    """M qdd = Q + A^T lambda with the lambda of numpy's least squares, whatever the solver."""
    p = given(rank)
    for motion in by_all_solvers(p):
        np.testing.assert_allclose(
            p["M"] @ motion.qdd, p["Q"] + p["A"].T @ motion.multipliers, atol=1e-11
        )
        np.testing.assert_allclose(p["A"] @ motion.qdd, p["b"], atol=1e-11)
        push = p["M"] @ np.asarray(motion.qdd) - p["Q"]
        np.testing.assert_allclose(motion.constraint_force, push, atol=1e-11)
        smallest = np.linalg.lstsq(p["A"].T, push, rcond=1e-10)[0]
        np.testing.assert_allclose(motion.multipliers, smallest, atol=1e-10)
        assert motion.rank == rank
        assert motion.residual < 1e-11
        assert motion.definite


def test_contradictory_constraints_leave_a_residual() -> None:
    p, rest = given(2, consistent=False), np.zeros(3)
    motion = jax.jit(lambda p: acceleration(GIVEN, rest, rest, 0.0, p))(p)
    miss = np.abs(p["A"] @ np.asarray(motion.qdd) - p["b"]).max()
    assert motion.residual == pytest.approx(miss, rel=1e-12)
    assert motion.residual > 0.1
    assert np.isfinite(motion.multipliers).all()


def test_a_rod_pulls() -> None:
    """At rest below the pivot the rod holds the weight: A^T lambda = (0, m g)."""
    p = PENDULUM.params
    motion = acceleration(PENDULUM.system, [0.0, -2.0], [0.0, 0.0], 0.0, p)
    np.testing.assert_allclose(motion.constraint_force, [0.0, p["m"] * p["g"]], atol=1e-14)
    np.testing.assert_allclose(motion.multipliers, [-p["m"] * p["g"] / 2], rtol=1e-15)
    np.testing.assert_allclose(motion.qdd, 0.0, atol=1e-15)


@pytest.mark.slow
def test_the_highest_of_several_slopes_without_native_code() -> None:
    """Gradients of a maximum, in a single call, where XLA compiles the functions of the system."""
    slopes = jnp.array([0.1, -0.7, 1.3])

    def on_slopes(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v - (slopes * q[0] + q[1]).max()

    system = System(on_slopes, coordinates=("x", "y"))
    with off():
        for q in np.random.default_rng(4).normal(size=(20, 2)):
            motion = acceleration(system, q, np.zeros(2), 0.0, {})
            steepest = 1.3 if q[0] > 0 else -0.7
            np.testing.assert_allclose(motion.qdd, [-steepest, -1.0], rtol=1e-12)


def test_batches_of_states() -> None:
    q, v = np.random.default_rng(0).normal(size=(2, 6, 2))
    one = jax.jit(lambda q, v: acceleration(PENDULUM.system, q, v, 0.0, PENDULUM.params))
    many = jax.jit(jax.vmap(one))(q, v)
    for k in range(6):
        for batch, single in zip(
            jax.tree.leaves(many), jax.tree.leaves(one(q[k], v[k])), strict=True
        ):
            np.testing.assert_array_equal(batch[k], single)  # also of mere rounding
    assert jnp.shape(many.multipliers) == (6, 1)
