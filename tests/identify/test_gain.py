"""The gain that a linear model promises within bounds, against all choices of active bounds."""

from itertools import product

import numpy as np

from jaxmech.identify.optimize import gain_within
from jaxmech.identify.problem import ResidualRows

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
