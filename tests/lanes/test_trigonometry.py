"""The pair of polynomials against mpmath."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxmech.lanes.trigonometry import sine_and_cosine


@pytest.mark.parametrize("largest", [1.0, 1e3, 1e6, 1e9])
def test_against_mpmath(largest: float) -> None:
    draw = np.random.default_rng(4)
    x = np.concatenate([draw.uniform(-largest, largest, 500), [0.0, -0.0, largest]])
    # The hardest arguments: next to multiples of pi/2.
    x = np.concatenate([x, np.round(x / (np.pi / 2)) * (np.pi / 2)])
    sine, cosine = (np.asarray(y) for y in sine_and_cosine(jnp.asarray(x)))
    with mpmath.workdps(60):
        exact = [(float(mpmath.sin(mpmath.mpf(a))), float(mpmath.cos(mpmath.mpf(a)))) for a in x]
    errors = np.abs(np.stack([sine, cosine], 1) - np.array(exact))
    assert errors.max() < 2.3e-16


def test_infinite_angles_have_no_sine() -> None:
    for part in sine_and_cosine(jnp.array([jnp.inf, -jnp.inf, jnp.nan])):
        assert np.isnan(part).all()
