"""Recordings with inputs: fits of driven motions, and what is refused."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify.fit import Identifiable, Settings, prepare
from jaxmech.identify.segments import ends_of_steps, merged, segments

TRUTH = {"m": 1.3, "k": 30.0, "c": 0.4}
GUESS = {"m": 1.0, "k": 25.0, "c": 0.8}
SLIDER = jm.System(
    lambda q, v, t, p: (p["m"] * v @ v - p["k"] * q @ q) / 2,
    force=lambda q, v, t, p: p["push"](t) * jnp.ones(1) - p["c"] * v,
    coordinates=("x",),
)
STEPS = jm.FixedSteps(8)


def motion(signal: jm.Signal, ts: Any) -> np.ndarray:
    params = {**TRUTH, "push": signal}
    start = jnp.array([0.1]), jnp.zeros(1)
    return np.asarray(jm.simulate(SLIDER, *start, ts, params, steps=jm.FixedSteps(16)).q)


def recorded(seed: int, samples: int, times: int, interpolation: Any = "hold") -> jm.Recording:
    rng = np.random.default_rng(seed)
    tu, ts = np.linspace(0.0, 2.0, samples), np.linspace(0.0, 1.9, times)
    signal = jm.Signal(tu, 3 * rng.normal(size=samples), interpolation)
    return jm.Recording(ts, motion(signal, ts), [0.1], [0.0], inputs={"push": signal})


@pytest.mark.parametrize("interpolation", ["hold", pytest.param("cubic", marks=pytest.mark.slow)])
def test_two_recordings_with_inputs_of_their_own(interpolation: Any) -> None:
    """Of other rates than the samples; with the input of the other one nothing would fit."""
    recordings = [recorded(0, 21, 40, interpolation), recorded(1, 34, 25, interpolation)]
    fit = jm.fit(SLIDER, recordings, GUESS, steps=STEPS)
    assert fit.converged
    assert set(fit.params) == {"m", "k", "c"}
    for name, value in TRUTH.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("states", ["free", jm.identify.Shooting(0.5)])
def test_a_jump_at_the_end_asks_for_no_shorter_steps(states: Any) -> None:
    ts, values = np.linspace(0.0, 1.0, 21), [1.0, -1.0, 3.0, 4.0]
    counts = []
    for shift in (0.0, 0.1):  # jumps at the ends of segments, and within
        signal = jm.Signal(np.arange(4) / 2 - shift, values, "hold")
        recording = jm.Recording(ts, motion(signal, ts), [0.1], [0.0], inputs={"push": signal})
        task, _ = prepare(Identifiable(SLIDER, GUESS), recording, Settings(initial_states=states))
        steps = task.problem.scheme.steps
        assert isinstance(steps, jm.FixedSteps)
        counts.append(steps.per_save or 1)
    assert max(counts) <= 8


@pytest.fixture(scope="module")
def adaptive() -> jm.identify.Fit:
    """With steps of chosen sizes, which end where the input jumps."""
    steps = jm.Adaptive(rtol=1e-9, atol=1e-11)
    return jm.fit(SLIDER, recorded(2, 21, 40), GUESS, steps=steps)


@pytest.mark.slow
def test_adaptive_steps_end_where_an_input_jumps(adaptive: jm.identify.Fit) -> None:
    assert adaptive.converged
    for name, value in TRUTH.items():
        np.testing.assert_allclose(adaptive.params[name], value, rtol=1e-5)


@pytest.mark.slow
def test_a_fit_is_stored_with_its_inputs(adaptive: jm.identify.Fit, tmp_path: Path) -> None:
    loaded = jm.identify.Fit.load(adaptive.save(tmp_path / "fit.npz"))
    assert str(loaded) == str(adaptive)
    pairs = zip(loaded.train.recordings, adaptive.train.recordings, strict=True)
    for ours, expected in pairs:
        ours, expected = ours.inputs["push"], expected.inputs["push"]
        assert ours.interpolation == "hold"
        np.testing.assert_array_equal(ours.ts, expected.ts)
        np.testing.assert_array_equal(ours.values, expected.values)
        assert float(ours(0.7)) == float(expected(0.7))


LATE = jm.System(
    lambda q, v, t, p: (p["m"] * v @ v - p["k"] * q @ q) / 2,
    force=lambda q, v, t, p: p["push"](t - p["delay"]) * jnp.ones(1) - p["c"] * v,
    coordinates=("x",),
)


def late(interpolation: Any, delay: float) -> jm.Recording:
    """Driven by an input that begins before the recording, and arrives late."""
    tu, ts = np.linspace(0.0, 2.0, 41), np.linspace(0.5, 1.9, 57)
    signal = jm.Signal(tu, np.random.default_rng(3).normal(size=41).cumsum(), interpolation)
    params = {**TRUTH, "push": signal, "delay": delay}
    start = jnp.array([0.1]), jnp.zeros(1)
    sol = jm.simulate(LATE, *start, ts, params, steps=jm.FixedSteps(32))
    return jm.Recording(ts, sol.q, [0.1], [0.0], inputs={"push": signal})


@pytest.mark.parametrize("interpolation", ["cubic", pytest.param("linear", marks=pytest.mark.slow)])
def test_a_delay_is_fitted(interpolation: Any) -> None:
    """Of more samples than lie between two that a segment needs without a delay."""
    fit = jm.fit(LATE, late(interpolation, 0.31), {**GUESS, "delay": 0.2}, steps=STEPS)
    assert fit.converged
    for name, value in {**TRUTH, "delay": 0.31}.items():
        np.testing.assert_allclose(fit.params[name], value, rtol=1e-3)


def test_the_times_of_a_segment_have_the_samples_of_its_inputs() -> None:
    recording = recorded(0, 21, 40)
    cut, origin = segments([recording, recorded(1, 34, 25)])
    knots = ends_of_steps(recording.inputs, 0.0, 1.9)
    row = np.asarray(cut.ts)[0]
    assert np.abs(row[:, None] - knots).min(0).max() < 1e-12
    np.testing.assert_array_equal(row[origin.rows[0]], recording.ts)
    # Padded to one shape; the values are those of the recording.
    assert cut.inputs["push"].values.shape[0] == 2
    signal, places = recording.inputs["push"], jnp.linspace(0.05, 1.85, 7)
    np.testing.assert_allclose(jax.vmap(cut.inputs_of(0)["push"])(places), jax.vmap(signal)(places))


def test_equal_times_count_once() -> None:
    ts = np.arange(4) * 0.1
    times, rows = merged(ts, np.array([0.1 + 1e-17, 0.15, 0.3]))
    np.testing.assert_allclose(times, [0.0, 0.1, 0.15, 0.2, 0.3])
    np.testing.assert_array_equal(rows, [0, 1, 3, 4])


def test_columns_of_a_table(tmp_path: Path) -> None:
    text = "t,x,tau\n0.0,0.1,1.0\n0.1,0.2,3.0\n0.2,0.3,2.0\n"
    (tmp_path / "push.csv").write_text(text)
    arguments: Any = {"file": "push.csv", "observed": ("x",), "time": "t", "interpolation": "hold"}
    table = jm.identify.Table(**arguments, inputs={"push": "tau"})
    (recording,) = jm.identify.read_table(table, tmp_path).train
    assert float(recording.inputs["push"](0.15)) == 3.0
    wrong = jm.identify.Table(**arguments, inputs={"push": "torque"})
    with pytest.raises(Exception, match="torque"):
        jm.identify.read_table(wrong, tmp_path)
