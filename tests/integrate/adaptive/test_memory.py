"""Memory of gradients through adaptive steps, and native code for batches of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.compiler import explain
from tests.integrate.events.falling import BALL, BALL_PARAMS, BOUNCE, DROPPED
from tests.small import OSCILLATOR

MOST = 16_384
PLAIN, WITH_EVENTS = 10, 26  # bytes for each step that a run may take


def plain(k: Any, most: int = MOST) -> Any:
    sol = jm.simulate(
        OSCILLATOR.system, OSCILLATOR.q, OSCILLATOR.v, np.array([0.0, 0.3, 0.5]), {"k": k},
        method=jm.DormandPrince5(), steps=jm.Adaptive(max_steps=most),
    )  # fmt: skip
    return sol.q[-1, 0] + sol.q[1, 1]


def bouncing(e: Any, most: int = MOST) -> Any:
    sol = jm.simulate(
        BALL, *DROPPED, np.array([0.0, 1.0]), {**BALL_PARAMS, "e": e},
        method=jm.DormandPrince5(), steps=jm.Adaptive(max_steps=most), events=BOUNCE,
    )  # fmt: skip
    return sol.q[-1, 1]


CASES = [(plain, PLAIN), (bouncing, WITH_EVENTS)]
both_cases = pytest.mark.parametrize(("loss", "each"), CASES, ids=["plain", "events"])


@pytest.mark.slow
@both_cases
def test_memory_is_one_number_for_each_possible_step(loss: Callable[..., Any], each: float) -> None:
    """In reverse mode, where all of it is in memory at the same time."""
    batch = 64
    program = jax.jit(jax.vmap(jax.grad(loss))).lower(jnp.linspace(0.5, 0.9, batch)).compile()
    used = program.memory_analysis().temp_size_in_bytes
    assert 8 < used / (MOST * batch) < each


@pytest.mark.slow
@both_cases
def test_a_batch_of_gradients_is_native_code(loss: Callable[..., Any], each: float) -> None:
    found = explain(jax.grad(lambda x: loss(x, 300)), jnp.linspace(0.5, 0.9, 8))
    assert [part.reason for part in found.parts] == ["", ""]
    # Nothing is done for each possible step outside of the loops.
    assert found.parts[1].operations < 2_000
