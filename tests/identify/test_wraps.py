"""Angles that wrap: recorded modulo a turn, they give the parameters of the unwrapped angle."""

from dataclasses import replace

import numpy as np
import pytest

from jaxmech import FixedSteps, simulate
from jaxmech.config.errors import StudyError
from jaxmech.identify import Recording, fit
from tests.identify.swings import BEGIN, CARTESIAN, FREE, SWING, TRUTH, on_the_rod
from tests.identify.swings import angle as observed_angle

TURN = 2 * np.pi
TS = np.arange(81) / 40


@pytest.fixture(scope="module")
def angle() -> np.ndarray:
    """A pendulum that turns over four times."""
    sol = simulate(SWING, [2.0], [16.0], TS, TRUTH, steps=FixedSteps(4))
    noise = np.random.default_rng(0).normal(0.0, 1e-3, TS.size)
    return np.asarray(sol.q)[:, 0] + noise


def wrapped(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % TURN - np.pi


def fitted(recording: Recording):
    """From parameters with which the motion leaves the recorded one by more than half a turn."""
    return fit(SWING, recording, BEGIN, free=FREE, steps=FixedSteps(2))


@pytest.fixture(scope="module")
def fits(angle):
    """From the angle itself, and from the angle modulo a turn with a start two turns away."""
    whole = Recording(TS, angle, [2.0], [16.0], name="over")
    turning = replace(whole, observed=wrapped(angle), q0=[2.0 - 2 * TURN], wraps={0: TURN})
    return fitted(whole), fitted(turning)


def test_the_parameters_are_those_of_the_unwrapped_recording(fits) -> None:
    whole, turning = fits
    assert np.ptp(whole.train.values[0]) > 3 * TURN
    np.testing.assert_allclose(turning.values, whole.values, rtol=1e-7)
    np.testing.assert_allclose(turning.residuals[0], whole.residuals[0], atol=1e-7)
    np.testing.assert_allclose(turning.errors, whole.errors, rtol=1e-6)
    assert turning.converged
    assert turning.warnings == whole.warnings == ()


@pytest.mark.slow
def test_a_sensor_may_wrap_where_the_prediction_does(angle) -> None:
    """The Cartesian pendulum, whose angle is an arctangent; 0 to 360 degrees are recorded."""
    q0, v0 = on_the_rod(2.0, 16.0, BEGIN["l"])

    def degrees(q, v, t, p):
        return np.rad2deg(1.0) * observed_angle(q, v, t, p)

    recording = Recording(TS, np.degrees(angle) % 360, q0, v0, wraps={0: 360.0})

    def start(q0, v0, p):
        scale = p["l"] / BEGIN["l"]
        return scale * q0, scale * v0

    begin = {**TRUTH, "l": 0.49}
    one = fit(
        CARTESIAN, recording, begin, free=("l", "c"), observe=degrees, start=start,
        initial_states="fixed", steps=FixedSteps(4),
    )  # fmt: skip
    np.testing.assert_allclose(one.params["l"], TRUTH["l"], rtol=2e-3)
    assert one.errors[0] < 0.1  # degrees; the noise is 0.057


def test_a_column_of_degrees_that_wraps(angle) -> None:
    degrees = np.degrees(angle) % 360
    degrees[40] = np.nan
    frame = {"t": TS, "theta [deg]": degrees}
    (one,) = Recording.from_frame(frame, observed="theta", time="t", wraps="theta")
    assert one.wraps == {0: TURN}
    assert np.nanmax(np.abs(np.diff(one.observed[:, 0]))) > 5
    np.testing.assert_allclose(np.delete(one.q0[:, 0], 40), np.delete(angle, 40), atol=1e-12)
    np.testing.assert_allclose(one.v0[0], 16.0, rtol=0.05)  # slope of the unwrapped angle
    np.testing.assert_array_equal(one.every(2).periods, [TURN])
    with pytest.raises(StudyError, match="must be angles in `observed`, but has 't'"):
        Recording.from_frame(frame, observed="theta [deg]", dt=0.1, wraps="t")
    with pytest.raises(StudyError, match="must be angles in"):
        Recording.from_frame({"x [mm]": TS}, observed="x", dt=0.1, wraps="x")
