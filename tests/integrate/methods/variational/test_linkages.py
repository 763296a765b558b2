"""RATTLE on a closed loop: a four-bar linkage."""

from typing import Any

import jax
import numpy as np
import pytest

import jaxmech as jm

SPAN, STEPS = 0.2, (20, 40, 80)


def _four_bar() -> tuple[jm.System, Any, Any, Any]:
    model = jm.models.four_bars(bars=1)
    return model.system, *model.initial({"angle": 1.1, "omega": -2.0}), model.params


LINKAGES = [
    pytest.param(_four_bar, id="four-bar", marks=pytest.mark.slow),  # nine coordinates
]


@pytest.mark.slow
@pytest.mark.parametrize("linkage", LINKAGES)
def test_order_two_against_steps_by_a_tight_tolerance(linkage: Any) -> None:
    system, q0, v0, params = linkage()
    tight = jm.Adaptive(rtol=1e-12, atol=1e-13)
    exact = jm.simulate(system, q0, v0, [0.0, SPAN], params, steps=tight)
    for kind in (jm.RATTLE,):
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
