"""Every law of motion agrees for every model: accelerations, forces, multipliers, motion.

Compiling nine laws is slow. To compile them once instead of once per model, the equations of all
models are padded to one shape with free coordinates of unit mass and rows of zeros, which every
law must accept anyway.
"""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Status, System, simulate
from jaxmech.errors import SimulationError
from jaxmech.laws import SVD, Contravariant, LagrangeFirstKind, Maggi, UdwadiaKalaba
from jaxmech.linalg import column_space_projector
from jaxmech.models import CATALOGUE, make
from jaxmech.system import EquationsOfMotion
from tests.laws.laws import LAWS
from tests.quick import each, quick
from tests.small import CASES, REDUNDANT

OPTIONS = {"chain": {"links": 3}, "four_bars": {"bars": 1}}
SINGULAR = {"bead_on_rod", "free_body", "small quaternion", "small massless"}
NEW = 3  # among LAWS: what comes before are the solvers of UdwadiaKalaba, tested elsewhere
STATES = 4
SHAPES = {False: (9, 8), True: (4, 2)}  # n and m of the largest, by whether M is singular

State = tuple[Any, Any, Any, Any]  # q, v, t, params


@cache
def laws(singular: bool) -> tuple[Any, ...]:
    """The reference law, then all others that are defined."""
    reference = UdwadiaKalaba(SVD())
    others = (law for law in LAWS if law != reference)
    return reference, *(law for law in others if not (singular and isinstance(law, Contravariant)))


def around(values: Any, width: float, seed: int) -> Any:
    """A batch of values around those of a pytree: relative scatter, absolute around zero."""
    draw = np.random.default_rng(seed)

    def batch(value: Any) -> np.ndarray:
        value = np.asarray(value, float)
        noise = draw.uniform(-width, width, (STATES, *value.shape))
        return value + noise * np.where(value == 0, 1.0, value)

    return jax.tree.map(batch, values)


def states(name: str) -> tuple[System, State]:
    """Random states: consistent ones of models; any, at which A qdd = b makes sense, of cases."""
    kind, *rest = name.split()
    if kind == "small":
        case = CASES[rest[0]]
        q, v, params = around(case.q, 0.1, 3), around(case.v, 0.1, 4), around(case.params, 0.1, 5)
        return case.system, (q, v, np.full(STATES, 0.3), params)
    model = make(kind, OPTIONS.get(kind))
    starts, params = around(dict(model.start), 0.2, 1), around(dict(model.params), 0.05, 2)
    if rest == ["collinear"]:
        starts["angle"] = np.array([0.0, np.pi, 0.0, np.pi])
    q, v = each(model.state)(starts, params)
    return model.system, (q, v, np.zeros(STATES), params)


SYSTEMS = (*CATALOGUE, "four_bars collinear", *(f"small {name}" for name in CASES))


@cache
def equations(name: str) -> tuple[EquationsOfMotion, EquationsOfMotion]:
    """M, Q, A and b of the system, and of the contravariant law where it is defined."""
    system, state = states(name)
    hooks = [laws(True)[0], laws(True)[0] if name in SINGULAR else Contravariant()]

    def both(*state: Any) -> Any:
        return [law.equations(system, *system.arguments(*state)) for law in hooks]

    return tuple(each(both)(*state))


def padded(eom: Any, n: int, m: int) -> tuple[np.ndarray, ...]:
    """M, Q, A and b of n coordinates, the new ones free and at rest, and m rows; a batch."""
    M, Q, A, b = (np.asarray(part) for part in (eom.M, eom.Q, eom.A, eom.b))
    more, rows = n - Q.shape[1], m - b.shape[1]
    unit = np.diag(np.arange(n) >= n - more).astype(float)
    return (
        np.pad(M, ((0, 0), (0, more), (0, more))) + unit,
        np.pad(Q, ((0, 0), (0, more))),
        np.pad(A, ((0, 0), (0, rows), (0, more))),
        np.pad(b, ((0, 0), (0, rows))),
    )


def solution(law: Any, singular: bool, eom: EquationsOfMotion) -> dict[str, Any]:
    found = law.solve(replace(eom, singular_mass=singular))
    return {
        "qdd": found.qdd,
        "force": eom.A.T @ found.multipliers,
        "multipliers": column_space_projector(eom.A) @ found.multipliers,
        "rank": found.rank,
        "definite": found.definite,
    }


@cache
def solutions(singular: bool) -> dict[str, list[Any]]:
    """The solutions of all `laws`, by system."""
    names = [name for name in SYSTEMS if (name in SINGULAR) == singular]
    blocks = [padded(equations(name)[0], *SHAPES[singular]) for name in names]

    def all_laws(*eom: Any) -> Any:
        return [solution(law, singular, EquationsOfMotion(*eom)) for law in laws(singular)]

    batch = map(np.concatenate, zip(*blocks, strict=True))
    found = jax.tree.map(np.asarray, each(all_laws)(*batch))
    parts = {name: slice(k * STATES, (k + 1) * STATES) for k, name in enumerate(names)}
    return {name: jax.tree.map(lambda x, part=part: x[part], found) for name, part in parts.items()}


@pytest.mark.parametrize("name", SYSTEMS)
def test_all_laws_agree(name: str) -> None:
    """Laws agree to 1e-10 of the largest acceleration or force, for every model."""
    exact, *others = solutions(name in SINGULAR)[name]
    assert exact["definite"].all()
    for found, law in zip(others, laws(name in SINGULAR)[1:], strict=True):
        for part in ("qdd", "force", "multipliers"):
            size = np.abs(exact[part]).max(1, initial=1.0)
            error = np.abs(found[part] - exact[part]).max(1, initial=0.0) / size
            assert np.all(error < 1e-10), (law, part, error)
        np.testing.assert_array_equal(found["rank"], exact["rank"], repr(law))
        assert found["definite"].all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_common_acceleration_solves_the_equations(name: str) -> None:
    """M qdd = Q + A^T lambda and A qdd = b, with the rank that numpy finds."""
    exact = solutions(name in SINGULAR)[name][0]
    eom = equations(name)[0]
    M, Q, A, b = (np.asarray(part) for part in (eom.M, eom.Q, eom.A, eom.b))
    n, m = Q.shape[1], b.shape[1]
    for k in range(STATES):
        qdd, multipliers = exact["qdd"][k], exact["multipliers"][k]
        size = 1 + np.abs(Q[k]).max() + np.abs(exact["force"][k]).max()
        assert np.abs(M[k] @ qdd[:n] - Q[k] - A[k].T @ multipliers[:m]).max() < 1e-10 * size
        assert np.abs(A[k] @ qdd[:n] - b[k]).max(initial=0) < 1e-10 * (1 + np.abs(qdd).max())
        assert exact["rank"][k] == (np.linalg.matrix_rank(A[k], tol=1e-9) if m else 0)
        np.testing.assert_array_equal(qdd[n:], 0.0)
        np.testing.assert_array_equal(multipliers[m:], 0.0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_metric_leads_to_the_same_equations(name: str) -> None:
    """M and Q from metric tensor and Christoffel symbols are those of the Lagrangian."""
    for value, right in zip(*map(jax.tree.leaves, reversed(equations(name))), strict=True):
        size = 1 + np.abs(right).max(initial=0.0)
        np.testing.assert_allclose(value, right, rtol=0, atol=1e-12 * size)


def test_redundant_and_singular_are_among_them() -> None:
    ranks = {name: int(solutions(name in SINGULAR)[name][0]["rank"][0]) for name in SYSTEMS}
    assert ranks["small redundant"] == 1 < equations("small redundant")[0].b.shape[1]
    assert ranks["four_bars collinear"] == 7 < ranks["four_bars"] == 8
    for name in SYSTEMS:
        M = np.asarray(equations(name)[0].M[0])
        assert (np.linalg.matrix_rank(M) < len(M)) == (name in SINGULAR)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS[NEW:], ids=repr)
def test_coordinates_and_rows_may_have_any_units(law: Any) -> None:
    """In single precision, in which 1e-5 of a row counts as dependent."""
    draw = np.random.default_rng(0)
    F, A, Q, b = (draw.normal(size=shape) for shape in ((5, 5), (3, 5), 5, 3))
    M = F @ F.T + np.eye(5)
    K = np.block([[M, -A.T], [A, np.zeros((3, 3))]])
    right = np.linalg.solve(K, np.concatenate([Q, b]))
    x, y = 10 ** draw.uniform(-4, 4, (12, 5)), 10 ** draw.uniform(-4, 4, (12, 3))
    batch = M * x[:, :, None] * x[:, None, :], Q * x, A * y[:, :, None] * x[:, None, :], b * y
    found = each(lambda *eom: law.solve(EquationsOfMotion(*eom)))(*map(np.float32, batch))
    solution = np.concatenate([found.qdd * x, found.multipliers * y], axis=1)
    np.testing.assert_array_equal(found.rank, 3)
    np.testing.assert_allclose(solution, np.tile(right, (12, 1)), atol=1e-4 * np.abs(right).max())


GRADIENTS = {False: ("redundant", "skate"), True: ("massless",)}
SMALL_SHAPES = {False: (3, 3), True: (2, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("singular", [False, True])
def test_derivatives_agree(singular: bool) -> None:
    """Reverse mode through every law, with redundant rows and singular M.

    The slope of a number made of qdd and A^T lambda, along a direction of q, v and the parameters.
    Equal because rank and consistency of the rows stay what they are in every direction; where the
    rank falls at a single pose there is no such derivative.
    """
    weights = np.random.default_rng(6).normal(size=(2, SMALL_SHAPES[singular][0]))

    def slopes(eom: Any, change: Any) -> Any:
        def value(law: Any, *eom: Any) -> Any:
            found = solution(law, singular, EquationsOfMotion(*eom))
            return weights[0] @ found["qdd"] + weights[1] @ found["force"]

        def along(law: Any) -> Any:
            slope = jax.grad(partial(value, law), argnums=(0, 1, 2, 3))(*eom)
            return sum(map(jnp.vdot, slope, change))

        return jnp.stack([along(law) for law in (laws(singular)[0], *laws(singular)[NEW:])])

    pairs = [tangents(name, *SMALL_SHAPES[singular]) for name in GRADIENTS[singular]]
    eom, change = (
        tuple(map(np.concatenate, zip(*blocks, strict=True))) for blocks in zip(*pairs, strict=True)
    )
    found = np.asarray(each(slopes)(eom, change))
    exact = found[:, 0]
    assert np.all(np.abs(exact) > 1e-3)
    np.testing.assert_allclose(found, np.broadcast_to(exact[:, None], found.shape), rtol=1e-8)


def tangents(name: str, n: int, m: int) -> tuple[Any, Any]:
    """The equations at a state, and how they change along a random direction of all arguments."""
    case = CASES[name]
    given = jax.tree.map(jnp.asarray, (case.q, case.v, case.params))
    draw = np.random.default_rng(8)
    direction = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), given)

    def at(q: Any, v: Any, params: Any) -> Any:
        return case.system.equations(q, v, 0.3, params)

    def both(given: Any, direction: Any) -> Any:
        return jax.jvp(at, given, direction)

    one = jax.tree.map(lambda x: x[None], (given, direction))
    eom, change = each(both)(*one)
    M, *others = padded(change, n, m)
    fixed = padded(jax.tree.map(np.zeros_like, change), n, m)[0]
    return padded(eom, n, m), (M - fixed, *others)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")  # of laws with an SVD
def test_trajectories_agree_over_five_seconds() -> None:
    """A step of 5 ms, as CoordinatePartition has other errors of a step than the others."""
    case, ts, (first, *others) = REDUNDANT, np.linspace(0.0, 5.0, 6), laws(False)
    compared = first, *others[NEW - 1 :]

    def run(*state: Any) -> Any:
        q, v, params = state
        steps = FixedSteps(per_save=200)
        return [
            simulate(case.system, q, v, ts, params, steps=steps, formulation=law, throw=False)
            for law in compared
        ]

    exact, *found = quick(run)(case.q, case.v, case.params)
    assert exact.status == Status.OK
    for sol, law in zip(found, compared[1:], strict=True):
        assert sol.status == Status.OK, law
        assert sol.rank == exact.rank
        np.testing.assert_allclose(sol.q, exact.q, rtol=0, atol=1e-8, err_msg=repr(law))
        np.testing.assert_allclose(sol.v, exact.v, rtol=0, atol=1e-8, err_msg=repr(law))


@pytest.mark.slow
def test_a_mass_that_happens_to_be_zero_is_detected() -> None:
    """A singular M is detected by its value, though other parameters make it regular."""
    M = jnp.diag(jnp.array([1.0, 0.0]))
    eom = EquationsOfMotion(M, jnp.ones(2), jnp.array([[1.0, 0.0]]), jnp.zeros(1))
    found = quick(lambda eom: [solution(law, False, eom) for law in laws(False)])(eom)
    for one, law in zip(found, laws(False), strict=True):
        assert not one["definite"], law
        assert np.isfinite(one["qdd"]).all()


def test_then_the_status_is_singular_mass() -> None:
    loose = System(lambda q, v, t, p: (v[0] ** 2 + p * v[1] ** 2) / 2, coordinates=("x", "y"))
    with pytest.raises(SimulationError) as caught:
        simulate(
            loose, [0.0, 0.0], [1.0, 0.0], [0.0, 0.1], 0.0, formulation=Maggi(), steps=FixedSteps(1)
        )
    assert caught.value.solution.status == Status.SINGULAR_MASS


def test_the_multiplier_system_counts_undetermined_directions() -> None:
    """M of rank 1 of 3 and a repeated row: one direction of qdd and one of lambda are free."""
    M, Q = jnp.diag(jnp.array([2.0, 0.0, 0.0])), jnp.array([1.0, 0.0, 0.0])
    twice = jnp.array([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]])
    solve = quick(
        lambda *blocks: LagrangeFirstKind().solve(EquationsOfMotion(*blocks, singular_mass=True))
    )
    law = solve(M, Q, twice, jnp.array([3.0, 6.0]))
    assert not law.definite
    np.testing.assert_allclose(law.qdd, [0.5, 3.0, 0.0], atol=1e-14)
    law = solve(M, Q, jnp.eye(3)[1:], jnp.array([3.0, 4.0]))
    assert law.definite
    assert law.rank == 2
    np.testing.assert_allclose(law.qdd, [0.5, 3.0, 4.0], atol=1e-14)
