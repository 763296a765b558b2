"""Sines and cosines of lanes against mpmath."""

from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxmech.compiler import vectorize


def sine_and_cosine(x: Any) -> tuple[np.ndarray, np.ndarray]:
    sine, cosine = vectorize(lambda x: (jnp.sin(x), jnp.cos(x)))(x)
    return np.asarray(sine), np.asarray(cosine)


@pytest.mark.parametrize("largest", [1.0, 1e3, 1e9, 1e15])
def test_against_mpmath(largest: float) -> None:
    draw = np.random.default_rng(4)
    x = np.concatenate([draw.uniform(-largest, largest, 500), [0.0, -0.0, largest]])
    # The hardest arguments: next to multiples of pi/2.
    x = np.concatenate([x, np.round(x / (np.pi / 2)) * (np.pi / 2)])
    found = np.stack(sine_and_cosine(jnp.asarray(x)), 1)
    with mpmath.workdps(60):
        exact = [(float(mpmath.sin(mpmath.mpf(a))), float(mpmath.cos(mpmath.mpf(a)))) for a in x]
    np.testing.assert_allclose(found, exact, rtol=3e-16, atol=0)


def test_single_precision_goes_through_double() -> None:
    x = jnp.linspace(-1e4, 1e4, 1001, dtype=jnp.float32)
    for part, exact in zip(sine_and_cosine(x), (np.sin, np.cos), strict=True):
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part, exact(np.asarray(x, float)).astype(np.float32))


def test_infinite_angles_have_no_sine() -> None:
    for part in sine_and_cosine(jnp.array([jnp.inf, -jnp.inf, jnp.nan])):
        assert np.isnan(part).all()
