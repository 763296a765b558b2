"""Simulation-based calibration: the test of uniform ranks, and a few posteriors."""

import numpy as np
import pytest

from experiments.calibration import CHAINS, ranks_of, uniformity


def test_uniform_ranks_are_told_from_those_of_narrow_and_shifted_posteriors() -> None:
    draw = np.random.default_rng(0)
    true, errors = draw.normal(size=(2, 400))
    centers = true + errors

    def ranks(width: float, shift: float) -> np.ndarray:
        draws = centers[:, None] + shift + width * draw.normal(size=(400, CHAINS))
        return (draws < true[:, None]).sum(1)

    assert uniformity(ranks(1.0, 0.0)) > 0.01
    assert uniformity(ranks(0.7, 0.0)) < 1e-4
    assert uniformity(ranks(1.0, 0.5)) < 1e-4


@pytest.mark.slow
def test_true_values_lie_within_their_posteriors() -> None:
    pytest.importorskip("blackjax")
    results = [ranks_of(seed) for seed in range(6)]
    assert results[0][0] == ("c", "w2", "angle at 0", "rate at 0")
    ranks = np.stack([ranks for _, ranks in results])
    # each of the 24 is at an end with a chance of 1 in 32
    assert np.isin(ranks, (0, CHAINS)).sum() <= 4
    assert 12 < ranks.mean() < 51
