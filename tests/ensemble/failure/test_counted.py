"""Mechanisms without a closed form, beside failures counted among millions of trajectories."""

import numpy as np
import pytest

from experiments.rare_events.mechanisms import counted_interval, counts, mechanisms
from jaxmech.ensemble import failure_probability


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crane", "double pendulum", "four-bar"])
def test_the_probability_is_the_share_that_was_counted(name: str) -> None:
    counted = counts()[name]
    low, high = counted_interval(**counted)
    result = failure_probability(mechanisms()[name])
    spread = np.hypot(result.coefficient_of_variation, np.log(high / low) / (2 * 1.96))
    ratio = result.probability / (counted["failures"] / counted["trajectories"])
    assert abs(np.log(ratio)) < 3 * spread
    assert result.coefficient_of_variation <= 0.051
    assert result.trajectories < 20_000
    assert not result.doubts
