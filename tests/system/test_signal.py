"""Recorded inputs: their values, and motions under them against closed forms."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import jaxmech as jm
from jaxmech.compiler import explain
from jaxmech.identify.segments import signal_rows

STIFFNESS, DAMPING = 30.0, 0.4
OSCILLATOR = jm.System(
    lambda q, v, t, p: (v @ v - STIFFNESS * q @ q) / 2,
    force=lambda q, v, t, p: p["u"](t) * jnp.ones(1) - DAMPING * v,
    coordinates=("x",),
)


def exact(signal: jm.Signal, ts: Any) -> np.ndarray:
    """x at times ts from rest at ts[0], by the exponential of a matrix for every piece."""
    tu, u = np.asarray(signal.ts) + float(signal.delay), np.asarray(signal.values)
    grid = np.unique(np.concatenate([ts, tu[(tu > ts[0]) & (tu < ts[-1])]]))
    state, states = np.zeros(2), {ts[0]: np.zeros(2)}
    for start, end in pairwise(grid):
        first, last = np.interp([start, end], tu, u)
        if signal.interpolation == "hold":
            k = np.searchsorted(tu, (start + end) / 2) - 1
            first = last = u[np.clip(k, 0, len(u) - 1)]
        A = np.zeros((4, 4))
        A[0, 1], A[1, 0], A[1, 1], A[1, 2], A[2, 3] = 1.0, -STIFFNESS, -DAMPING, 1.0, 1.0
        slope = (last - first) / (end - start)
        state = (expm(A * (end - start)) @ np.array([*state, first, slope]))[:2]
        states[end] = state
    return np.array([states[t][0] for t in ts])


@pytest.mark.parametrize("even", [True, False])
def test_values(even: bool) -> None:
    ts = np.linspace(-1.0, 2.0, 7) if even else np.array([-1.0, -0.4, 0.1, 0.3, 1.1, 1.3, 2.0])
    places = np.array([-1.0, -0.5, 0.05, 0.3, 1.9])
    square = ts**2

    def at_places(interpolation: Any, values: Any, delay: float = 0.0) -> Any:
        return jax.vmap(jm.Signal(ts, values, interpolation, delay))(jnp.asarray(places))

    held = square[np.searchsorted(ts, places, side="right") - 1]
    np.testing.assert_allclose(at_places("hold", square), held, rtol=1e-14)
    linear = np.interp(places, ts, square)
    np.testing.assert_allclose(at_places("linear", square), linear, rtol=1e-14)
    # A cubic with the slopes of parabolas is exact for a parabola, but where it ends.
    inner = slice(2, 4)
    np.testing.assert_allclose(at_places("cubic", square)[inner], places[inner] ** 2, rtol=1e-13)
    late = np.interp(places - 0.2, ts, square)
    np.testing.assert_allclose(at_places("linear", square, 0.2), late, rtol=1e-13)
    pair = np.stack([square, 3 * ts], axis=1)
    expected = np.stack([linear, 3 * places], axis=1)
    np.testing.assert_allclose(at_places("linear", pair), expected, rtol=1e-13)
    outside = [float(jm.Signal(ts, square, kind)(t)) for kind in ("hold", "cubic") for t in (-9, 9)]
    np.testing.assert_allclose(outside, [1.0, 4.0, 1.0, 4.0])


@pytest.mark.parametrize("interpolation", ["hold", "linear"])
def test_an_oscillator_under_a_recorded_force(interpolation: Any) -> None:
    """Steps end at the samples, whose rate has nothing to do with that of the saves."""
    tu, ts = np.linspace(-0.3, 2.2, 101), np.linspace(0.0, 2.0, 21)
    rows = np.random.default_rng(0).normal(size=(2, 101))

    def motion(u: Any) -> Any:
        params = {"u": jm.Signal(tu, u, interpolation)}
        steps = jm.FixedSteps(8)
        return jm.simulate(OSCILLATOR, jnp.zeros(1), jnp.zeros(1), ts, params, steps=steps).q[:, 0]

    expected = [exact(jm.Signal(tu, u, interpolation), ts) for u in rows]
    np.testing.assert_allclose(jax.vmap(motion)(rows), expected, atol=1e-10)


def test_save_times_among_which_the_samples_are() -> None:
    ts = np.linspace(0.0, 2.0, 41)
    signal = jm.Signal(ts[::2], np.random.default_rng(1).normal(size=21), "hold")
    rest = jnp.zeros(1)
    motion = [
        jm.simulate(OSCILLATOR, rest, rest, ts, {"u": signal}, steps=jm.FixedSteps(8, times=times))
        for times in ((), "saves")
    ]
    assert [int(sol.accepted) for sol in motion] == [320, 320]  # none of them twice
    for sol in motion:
        np.testing.assert_allclose(sol.q[:, 0], exact(signal, ts), atol=1e-9)


@pytest.mark.slow
def test_derivatives_by_samples_and_delay() -> None:
    ts, tu = np.linspace(0.0, 1.0, 5), np.linspace(-0.1, 1.1, 13)
    u, rest = np.random.default_rng(2).normal(size=13), jnp.zeros(1)

    def end(u: Any, delay: Any) -> Any:
        params = {"u": jm.Signal(tu, u, "hold", delay)}
        return jm.simulate(OSCILLATOR, rest, rest, ts, params, steps=jm.FixedSteps(8)).q[-1, 0]

    by_u, by_delay = jax.jit(jax.grad(end, (0, 1)))(u, 0.013)
    shifted = [exact(jm.Signal(tu, u, "hold", 0.013 + d), ts)[-1] for d in (-1e-5, 1e-5)]
    np.testing.assert_allclose(by_delay, (shifted[1] - shifted[0]) / 2e-5, rtol=1e-5)
    # The end is linear in the samples.
    units = [exact(jm.Signal(tu, row, "hold", 0.013), ts)[-1] for row in np.eye(13)]
    np.testing.assert_allclose(by_u, units, atol=2e-8)


def test_native_code_does_not_grow_with_the_samples() -> None:
    def operations(count: int) -> Any:
        def motion(u: Any) -> Any:
            params = {"u": jm.Signal(np.linspace(0.0, 1.0, count), u, "cubic")}
            ts, rest = jnp.linspace(0.0, 1.0, 5), jnp.zeros(1)
            return jm.simulate(OSCILLATOR, rest, rest, ts, params, steps=jm.FixedSteps(4)).q

        return [
            (part.operations, part.reason) for part in explain(motion, jnp.zeros((4, count))).parts
        ]

    assert operations(1000) == operations(3000)
    assert [reason for _, reason in operations(1000)] == [""]


@pytest.mark.parametrize("interpolation", ["linear", pytest.param("hold", marks=pytest.mark.slow)])
def test_adaptive_steps_end_at_many_samples_in_native_code(interpolation: Any) -> None:
    """Without it a `NativeCodeWarning` is an error here."""
    tu, ts = np.linspace(0.0, 2.0, 101), np.linspace(0.0, 2.0, 33)
    values = np.random.default_rng(0).normal(size=tu.size)
    signal = jm.Signal(tu, values, interpolation)

    def motion(scale: Any) -> Any:
        params = {"u": jm.Signal(tu, scale * values, interpolation)}
        return jm.simulate(OSCILLATOR, [0.0], [0.0], ts, params, steps=jm.Adaptive(rtol=1e-9)).q

    expected = exact(signal, ts)
    np.testing.assert_allclose(motion(1.0)[:, 0], expected, atol=1e-8)
    batch = jax.vmap(motion)(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(batch[..., 0], np.outer([1.0, 2.0], expected), atol=1e-8)
    slopes = jax.vmap(jax.grad(lambda scale: motion(scale)[-1, 0]))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(slopes, expected[-1], atol=1e-8)


def test_thinned_rows() -> None:
    stack = signal_rows(
        [jm.Signal(np.arange(float(n)), np.ones(n) if n < 9 else np.arange(9.0)) for n in (5, 9)]
    )
    rows = jax.tree.map(lambda x: x[np.array([1, 0, 1])], stack)
    few = rows.thinned(4, axis=1)
    assert few.values.shape == (3, 3)
    np.testing.assert_allclose(jax.vmap(lambda u: u(4.5))(few), [4.5, 1.0, 4.5])
