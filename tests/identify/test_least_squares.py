"""Residuals, their derivatives, and the gain that a linear model of them promises."""

from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import Recording
from jaxmech.identify.fit import prepare
from jaxmech.identify.optimize import gain_within
from jaxmech.identify.problem import (
    ResidualRows,
    Task,
    evaluated,
    half_squares,
    residual_rows,
    triangles,
)

PARAMS = {"c": 0.1, "g": 9.81, "l": 0.5, "m": 1.0, "offset": 0.01}


def _lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    """The third coordinate is a pointer without mass."""
    return 0.5 * p["m"] * v[:2] @ v[:2] - p["m"] * p["g"] * q[1]


def _friction(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -p["c"] * v * jnp.array([1.0, 1.0, 0.0])


def _rod(q: Any, t: Any, p: Any) -> Any:
    return (q[:2] @ q[:2] - p["l"] ** 2) / 2


def _rod_again(q: Any, t: Any, p: Any) -> Any:
    return 3 * _rod(q, t, p)


def _pointer(q: Any, t: Any, p: Any) -> Any:
    return q[2] - q[0] - 2 * q[1]


SYSTEM = jm.System(
    _lagrangian,
    [jm.Holonomic(fn) for fn in (_rod, _rod_again, _pointer)],
    _friction,
    coordinates=("x", "y", "pointer"),
)


def pointer(q: Any, v: Any, t: Any, p: Any) -> Any:
    return q[2:] + p["offset"]


def start(q0: Any, v0: Any, p: Any) -> Any:
    sine, cosine = jnp.sin(q0[0]), jnp.cos(q0[0])
    q = p["l"] * jnp.stack([sine, -cosine, sine - 2 * cosine])
    v = p["l"] * v0[0] * jnp.stack([cosine, sine, cosine + 2 * sine])
    return q, v


@pytest.fixture(scope="module")
def task() -> Task:
    rng, ts = np.random.default_rng(4), np.arange(1001) / 500
    recordings = [
        Recording(ts, rng.normal(0.0, 0.5, (len(ts), 1)), [theta], [0.3], weights=2.0)
        for theta in (0.8, -0.4)
    ]
    subject = jm.identify.Identifiable(
        SYSTEM, PARAMS, observe=pointer, start=start, free=["c", "l", "offset"],
        bounds={"l": (0, None)}, prior={"c": (0.2, 0.1)},
    )  # fmt: skip
    return prepare(subject, recordings, jm.identify.Settings(steps=jm.FixedSteps(1)))[0]


Y = jnp.array([0.1, -0.05, 0.3, 0.01, -0.02, 0.03, 0.02])  # 3 parameters, 2 for each start


@pytest.fixture(scope="module")
def gradient(task: Task) -> Any:
    """Losses and reverse gradients of several unknowns at once."""

    def loss(y: Any) -> Any:
        return half_squares(task.problem, y[None], task.data, task.conditions)[0]

    return jax.jit(jax.vmap(jax.value_and_grad(loss)))


@pytest.mark.slow
def test_both_modes_and_differences_agree(task: Task, gradient: Any) -> None:
    """Reverse gradients, J^T r of the compressed rows, and central differences."""
    assert task.data.segments.ts.shape == (2, 1024)  # a power of two
    step = 1e-5
    shifts = step * np.concatenate([np.zeros((1, 7)), np.eye(7), -np.eye(7)])
    losses, slopes = (np.asarray(x) for x in gradient(Y[None] + shifts))
    differences = (losses[1:8] - losses[8:]) / (2 * step)
    size = np.abs(differences).max()
    np.testing.assert_allclose(slopes[0], differences, rtol=1e-6, atol=1e-8 * size)

    found = residual_rows(task, evaluated(task, Y), task.conditions)
    np.testing.assert_allclose(found.loss, losses[0], rtol=1e-12)
    gradient_of_rows = found.jacobian.T @ found.values
    np.testing.assert_allclose(gradient_of_rows, slopes[0], rtol=1e-9, atol=1e-11 * size)


def triangle(J: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Of one segment with a single sensor."""
    return triangles(r[None, :, None], J.T[None, :, :, None])[0]


def test_a_triangle_keeps_all_sums() -> None:
    rng = np.random.default_rng(6)
    J, r = rng.normal(size=(40, 4)), rng.normal(size=40)
    J[:, 2] = J[:, 0] - 2 * J[:, 1]  # depends on those before it
    R = triangle(J, r)
    whole = np.concatenate([J, r[:, None]], axis=1)
    np.testing.assert_allclose(R.T @ R, whole.T @ whole, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(np.tril(R, -1), 0.0)
    assert abs(R[2, 2]) < 1e-13
    assert triangle(J[:3], r[:3]).shape == (3, 5)  # fewer samples than numbers


@pytest.mark.parametrize("rows", [1365, 1366, 6000])  # one block, two, five in two rounds
def test_blocks_of_rows_have_the_sums_of_the_whole(rows: int) -> None:
    rng = np.random.default_rng(7)
    J, r = rng.normal(size=(rows, 5)), rng.normal(size=rows)
    R, whole = triangle(J, r), np.concatenate([J, r[:, None]], axis=1)
    assert R.shape == (6, 6)
    np.testing.assert_allclose(R.T @ R, whole.T @ whole, rtol=1e-12, atol=1e-11)
    J[-1, 3] = np.nan
    assert np.isnan(triangle(J, r)).any()


@pytest.mark.parametrize("size", [1e160, np.inf, np.nan])
@pytest.mark.parametrize("place", ["residual", "derivative"])
def test_rows_that_cannot_be_squared_are_infinite(task: Task, size: float, place: str) -> None:
    """The residuals of a motion that explodes count as infinite, not as zero."""
    at = evaluated(task, Y)
    run, slopes = at.run, at.slopes
    if place == "residual":
        residual = np.asarray(run.residual).copy()
        residual[1, 7] = size
        run = eqx.tree_at(lambda run: run.residual, run, residual)
    else:
        derivatives = np.asarray(slopes.residual).copy()
        derivatives[1, 2, 7] = size
        slopes = slopes._replace(residual=derivatives)
    rows = residual_rows(task, at._replace(run=run, slopes=slopes), task.conditions)
    assert not rows.finite
    assert rows.loss == np.inf
    assert np.isfinite(rows.jacobian).all()


NONE = np.zeros(0, int)


def gain_by_choices(J: np.ndarray, r: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The gain of the best step of which each component is free, or at one of its bounds."""
    gains = [0.0]
    for choice in product((None, 0, 1), repeat=len(low)):
        held = [k for k, end in enumerate(choice) if end is not None]
        free = [k for k in range(len(low)) if k not in held]
        step = np.zeros(len(low))
        step[held] = [(low, high)[choice[k]][k] for k in held]
        if free:
            rest = r + J[:, held] @ step[held]
            step[free] = np.linalg.lstsq(J[:, free], -rest, rcond=None)[0]
        if (low - 1e-12 <= step).all() and (step <= high + 1e-12).all():
            gains.append((r @ r - (r + J @ step) @ (r + J @ step)) / 2)
    return max(gains)


def test_the_gain_within_bounds_is_the_largest_of_all_choices() -> None:
    draw = np.random.default_rng(0)
    bounded = 0
    for _ in range(60):
        J, r = draw.normal(size=(9, 3)) * [1.0, 1e3, 1e-2], draw.normal(size=9)
        low, high = np.array([[-0.1, -1e-4, -5.0], [0.1, 1e-4, 20.0]]) * draw.uniform(0, 2, (2, 3))
        gain, step = gain_within(ResidualRows(r, J, NONE, np.zeros_like(r)), low, high)
        np.testing.assert_allclose(gain, gain_by_choices(J, r, low, high), rtol=1e-9, atol=1e-12)
        assert (low <= step).all()
        assert (step <= high).all()
        bounded += ((step == low) | (step == high)).sum() > 1
    assert bounded > 20
