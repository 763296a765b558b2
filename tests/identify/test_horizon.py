"""The warning of a recording that is too long for its gradient."""

import warnings

import jax.numpy as jnp
import numpy as np

from jaxmech import FixedSteps, System
from jaxmech.identify import Recording, fit

TS = np.linspace(0.0, 6.0, 61)
# Upright, x'' = k x: changes grow by exp(3 t) for k = 9; or hanging, where they do not grow.
SYSTEM = System(lambda q, v, t, p: 0.5 * (v @ v + p["k"] * q @ q), coordinates=("x",))


def warnings_of(k: float) -> tuple[str, ...]:
    x = np.cosh(3 * TS) if k > 0 else np.cos(3 * TS)
    noise = 1e-3 * np.abs(x).max() * np.random.default_rng(0).normal(size=TS.size)
    recording = Recording(TS, 1e-3 * (x + noise), [1e-3], [0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(SYSTEM, [recording], {"k": jnp.asarray(k)}, steps=FixedSteps(4))
        return found.warnings


def test_a_motion_that_grows_is_too_long_and_an_oscillation_is_not() -> None:
    (text,) = [x for x in warnings_of(9.0) if x.startswith("Gradients through this motion")]
    assert "doubling every 0.23 s" in text  # log(2) / 3
    assert "`initial_states=Shooting(length=" in text
    assert not [x for x in warnings_of(-9.0) if x.startswith("Gradients")]
