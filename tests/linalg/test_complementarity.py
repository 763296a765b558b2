"""Linear complementarity problems, against all choices of rows that may be positive."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from jaxmech.linalg import complementarity

SIZES = (1, 2, 3, 5)


def solutions(M: np.ndarray, r: np.ndarray) -> list[np.ndarray]:
    """w of the solutions, by least squares for each choice of positive rows."""
    found = []
    for choice in itertools.product((False, True), repeat=r.size):
        z, rows = np.zeros(r.size), np.array(choice)
        if rows.any():
            z[rows] = np.linalg.lstsq(M[np.ix_(rows, rows)], -r[rows], rcond=None)[0]
        w = M @ z + r
        if min(z.min(), w.min()) > -1e-9 and abs(z @ w) < 1e-8:
            found.append(w)
    return found


def problems(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Positive semidefinite problems, singular and degenerate ones among them."""
    rng = np.random.default_rng(n)
    matrices, constants = [], []
    for k in range(60):
        rank = rng.integers(1, n + 1)
        shape = n, rank
        A = rng.integers(-2, 3, shape).astype(float) if k % 2 else rng.normal(size=shape)
        r = A @ rng.normal(size=rank) + (0.0 if k % 3 else 0.3 * rng.normal(size=n))
        matrices.append(A @ A.T)
        constants.append(np.round(r) if k % 5 == 0 else r)
    return np.array(matrices), np.array(constants)


@pytest.mark.parametrize("n", SIZES)
def test_solutions_are_those_of_all_choices(n: int) -> None:
    cases = problems(n)
    result = jax.jit(jax.vmap(complementarity))(*cases)
    for M, r, z, is_basic, solved in zip(*cases, *map(np.asarray, result[:3]), strict=True):
        expected = solutions(M, r)
        assert solved == bool(expected)
        if not solved:
            continue
        assert z.min() >= 0
        assert not z[~is_basic].any()
        # w is unique, also where z is not.
        np.testing.assert_allclose(M @ z + r, expected[0], atol=1e-8)
        assert np.linalg.matrix_rank(M[np.ix_(is_basic, is_basic)]) == is_basic.sum()


def contact_problems() -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows C of contacts in units of the masses, and d, for C y >= d; some C have equal rows."""
    rng = np.random.default_rng(0)
    cases = []
    for k in range(90):
        contacts = 2 + k % 7
        freedoms = int(rng.integers(1, contacts + 2))
        C = rng.normal(size=(contacts, freedoms))
        d = rng.normal(size=contacts)
        if k % 3 == 0:  # legs of a table: combinations of the others, which can all be kept
            half = contacts // 2
            C[half:] = rng.normal(size=(contacts - half, half)) @ C[:half]
            d = C @ rng.normal(size=freedoms)
        cases.append((C, d))
    return cases


def test_accelerations_of_contacts_are_those_of_a_quadratic_program() -> None:
    """The shortest y with C y >= d, by non-negative least squares (Lawson and Hanson, LDP)."""
    cases = contact_problems()
    # The rest of eight gaps is open.
    matrices, constants = np.tile(np.eye(8), (len(cases), 1, 1)), np.ones((len(cases), 8))
    for k, (C, d) in enumerate(cases):
        matrices[k, : len(d), : len(d)] = C @ C.T
        constants[k, : len(d)] = -d
    result = jax.jit(jax.vmap(complementarity))(matrices, constants)
    possible = 0
    for (C, d), z, solved in zip(cases, result.z, result.solved, strict=True):
        stacked = np.vstack([C.T, d])
        target = np.eye(len(stacked))[-1]
        u, size = scipy.optimize.nnls(stacked, target)
        residual = stacked @ u - target
        assert bool(solved) == (size > 1e-9)
        if not solved:
            continue
        possible += 1
        push = np.asarray(z)[: len(d)]
        assert push.min() >= 0
        np.testing.assert_allclose(push @ C, -residual[:-1] / residual[-1], atol=1e-7)
    assert 40 < possible < 90


def test_inequalities_that_cannot_hold_together_have_no_solution() -> None:
    # A body between two walls that approach each other.
    M = jnp.array([[1.0, -1.0], [-1.0, 1.0]])
    assert not complementarity(M, jnp.array([-1.0, -1.0])).solved
    assert complementarity(M, jnp.array([-1.0, 1.0])).solved


def test_the_path_goes_on_to_another_solution_exactly_where_there_may_be_one() -> None:
    beyond = jax.jit(jax.vmap(lambda M, r: complementarity(M, r, goes_on=True)))
    for n in SIZES:  # w is unique
        cases = problems(n)
        plain, result = jax.vmap(complementarity)(*cases), beyond(*cases)
        assert not np.asarray(result.others).any()
        for first, second in zip(plain[:3], result, strict=False):
            np.testing.assert_array_equal(first, second)
    rng, returns = np.random.default_rng(1), 0
    for _ in range(60):  # of any symmetry, each with the solution z = 0
        M, r = rng.normal(size=(3, 3)), rng.uniform(0.1, 1.0, 3)
        others = np.asarray(complementarity(M, r, goes_on=True).others)
        if not others.any():
            continue
        z = np.zeros(3)
        z[others] = np.linalg.solve(M[np.ix_(others, others)], -r[others])
        assert z.min() >= 0
        assert (M @ z + r).min() >= -1e-12
        returns += 1
    assert returns > 10
    assert complementarity(-jnp.eye(1), jnp.ones(1), goes_on=True).others[0]


def test_single_precision() -> None:
    M = jnp.array([[2.0, 1.0], [1.0, 2.0]], jnp.float32)
    result = complementarity(M, jnp.array([-1.0, -1.0], jnp.float32))
    assert result.z.dtype == jnp.float32
    np.testing.assert_allclose(result.z, [1 / 3, 1 / 3], rtol=1e-6)
