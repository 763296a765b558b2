"""Symplectic methods on closed loops: a four-bar linkage and a slider-crank."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm

SPAN, STEPS = 0.2, (20, 40, 80)


def _slider_crank() -> tuple[jm.System, Any, Any, Any]:
    """Crank (angle a) and rod (its middle x, y and angle b), whose other end slides along x."""
    r, length = 0.3, 0.8

    def joint(q: Array, t: Array, p: Any) -> Array:
        a, x, y, b = q
        half = length / 2 * jnp.stack([jnp.cos(b), jnp.sin(b)])
        pin = r * jnp.stack([jnp.cos(a), jnp.sin(a)])
        return jnp.append(jnp.stack([x, y]) - half - pin, y + half[1])

    def lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
        slider = v[1] - length / 2 * jnp.sin(q[3]) * v[3]
        kinetic = 0.5 * (0.1 * v[0] ** 2 + v[1] ** 2 + v[2] ** 2 + 0.05 * v[3] ** 2 + slider**2)
        return kinetic - 9.81 * q[2]

    system = jm.System(lagrangian, [jm.Holonomic(joint)], coordinates=("a", "x", "y", "b"))
    a = 0.9
    b = -np.arcsin(r * np.sin(a) / length)
    x = r * np.cos(a) + length / 2 * np.cos(b)
    guess = np.array([a, x, r * np.sin(a) / 2, b])
    turning = np.array([4.0, 0.0, 0.0, 0.0])
    return system, *jm.assemble(system, guess, turning, 0.0, fixed=("a",)), None


def _four_bar() -> tuple[jm.System, Any, Any, Any]:
    model = jm.models.four_bars(bars=1)
    return model.system, *model.initial({"angle": 1.1, "omega": -2.0}), model.params


LINKAGES = [
    pytest.param(_slider_crank, id="slider-crank"),
    pytest.param(_four_bar, id="four-bar", marks=pytest.mark.slow),  # nine coordinates
]


@pytest.mark.slow
@pytest.mark.parametrize("linkage", LINKAGES)
def test_order_two_against_steps_by_a_tight_tolerance(linkage: Any) -> None:
    system, q0, v0, params = linkage()
    tight = jm.Adaptive(rtol=1e-12, atol=1e-13)
    exact = jm.simulate(system, q0, v0, [0.0, SPAN], params, steps=tight)
    kinds = [jm.Variational]
    if linkage is _four_bar:  # the mass of the slider makes M depend on q
        kinds.append(jm.RATTLE)
    for kind in kinds:
        # The last time is repeated, so that runs of all lengths share one program.
        run = jax.jit(
            lambda ts, kind=kind: jm.simulate(
                system, q0, v0, ts, params, method=kind(), steps=jm.FixedSteps(1)
            )
        )
        errors = []
        for steps in STEPS:
            sol = run(np.minimum(np.arange(STEPS[-1] + 1) * (SPAN / steps), SPAN))
            assert sol.ok
            assert sol.position_residual.max() < 1e-13
            errors.append(abs(sol.q[-1] - exact.q[-1]).max())
        np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.05)
        assert errors[-1] < 1e-3
