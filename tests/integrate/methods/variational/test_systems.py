"""Long-time methods with redundant rows and in single precision."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.small import PENDULUM, REDUNDANT, Case

TS = np.linspace(0.0, 1.0, 6)


def run(case: Case, method: Any, per_save: int) -> jm.Solution:
    return jm.simulate(
        case.system, case.q, case.v, TS, case.params, method=method, steps=jm.FixedSteps(per_save)
    )


@pytest.mark.slow
def test_dependent_rows_change_nothing() -> None:
    """The motion of the rod three times is that of the rod."""
    three, one = run(REDUNDANT, jm.RATTLE(), 20), run(PENDULUM, jm.RATTLE(), 20)
    np.testing.assert_allclose(three.q, one.q, atol=1e-12)
    np.testing.assert_allclose(three.v, one.v, atol=1e-12)
    assert three.rank == 1


@pytest.mark.slow
def test_single_precision() -> None:
    single = PENDULUM._replace(q=np.float32(PENDULUM.q), v=np.float32(PENDULUM.v))
    for method in (jm.RATTLE(),):
        sol = run(single, method, 20)
        assert sol.q.dtype == jnp.float32
        assert sol.ok
        assert sol.position_residual.max() < 2e-6
