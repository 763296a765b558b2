"""The fields of a `Recording`, and invalid ones."""

from typing import Any

import numpy as np
import pytest

from jaxmech.identify import Recording

NAN = float("nan")
GIVEN: dict[str, Any] = {
    "ts": [0.0, 0.1, 0.3],
    "observed": [[1.0, 2.0], [NAN, 3.0], [2.0, 4.0]],
    "q0": [1.0],
    "v0": [0.0],
}


def test_shapes_are_completed() -> None:
    one = Recording(**GIVEN, weights=[2.0, 3.0], start_sd=(0.1, [0.2]), name="swing")
    assert one.count == 5
    assert one.observed.shape == (3, 2)
    assert [sd.shape for sd in one.start_sd] == [(1,), (1,)]
    assert repr(one) == "Recording(swing: 3 samples of 2 sensors in 0.3 s, 1 missing)"
    single = Recording([0.0, 1.0], [1.0, 2.0], [0.0], [0.0])
    assert single.observed.shape == (2, 1)


def test_every_second_sample() -> None:
    ts = np.arange(7) / 10
    guesses = np.arange(14.0).reshape(7, 2)
    weights = np.arange(1.0, 8.0)[:, None]
    one = Recording(ts, ts**2, guesses, guesses + 1, weights=weights, name="a").every(3)
    np.testing.assert_array_equal(one.ts, ts[[0, 3, 6]])
    np.testing.assert_array_equal(one.observed[:, 0], ts[[0, 3, 6]] ** 2)
    np.testing.assert_array_equal(one.q0, guesses[[0, 3, 6]])
    np.testing.assert_array_equal(one.v0, guesses[[0, 3, 6]] + 1)
    np.testing.assert_array_equal(one.weights[:, 0], [1.0, 4.0, 7.0])
    assert one.name == "a"
    with pytest.raises(ValueError, match="`stride` must be a positive integer"):
        one.every(0)


def test_of_seconds_since_1970_the_first_is_subtracted() -> None:
    """Double precision resolves them to 2.4e-7 s only, a part of the steps."""
    ts, epoch = np.linspace(0.0, 6.0, 121), 1.7e9
    one = Recording(epoch + ts, np.sin(ts), [0.0], [1.0])
    assert one.origin == epoch
    np.testing.assert_allclose(one.ts, ts, atol=3e-7)
    assert "times since 1700000000 s" in repr(one)
    assert one.every(2).origin == epoch
    late = Recording(1000.0 + ts, np.sin(ts), [0.0], [1.0])  # as the functions may need them
    assert late.origin == 0.0
    assert late.ts[0] == 1000.0
