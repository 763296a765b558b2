"""Arguments of every kind have the right result, or an error with the remedy."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from jaxmech import FixedSteps, acceleration, assemble, simulate
from jaxmech.analysis import structure
from tests.quick import quick
from tests.small import PENDULUM

TS = np.linspace(0.0, 0.3, 4)
SYSTEM, PARAMS, Q, V = PENDULUM

VERBS: dict[str, Callable[..., Any]] = {
    "simulate": lambda q=Q, v=V, t=TS, p=PARAMS: (
        simulate(SYSTEM, q, v, t, p, steps=FixedSteps(1)).q
    ),
    "assemble": lambda q=Q, v=V, t=0.0, p=PARAMS: assemble(SYSTEM, q, v, t, p)[0],
    "acceleration": lambda q=Q, v=V, t=0.0, p=PARAMS: acceleration(SYSTEM, q, v, t, p).qdd,
    "equations": lambda q=Q, v=V, t=0.0, p=PARAMS: SYSTEM.equations(q, v, t, p).b,
    "structure": lambda q=Q, v=V, t=0.0, p=PARAMS: structure(SYSTEM, q, v, t, p),
}


def test_the_other_byte_order() -> None:
    swapped = [np.asarray(x, ">f8") for x in (Q, V, TS)]
    params = {name: np.asarray(x, ">f8") for name, x in PARAMS.items()}
    np.testing.assert_array_equal(VERBS["simulate"](*swapped, params), VERBS["simulate"]())


@pytest.mark.slow
def test_strict_promotion() -> None:
    """JAX does not reuse programs compiled under the other setting."""
    verbs = {name: quick(VERBS[name]) for name in ("assemble", "acceleration", "equations")}
    verbs["simulate"] = quick(jax.value_and_grad(lambda q, v: VERBS["simulate"](q, v).sum()))
    expected = {name: verb(Q, V) for name, verb in verbs.items()}
    with jax.numpy_dtype_promotion("strict"):
        for name, verb in verbs.items():
            jax.tree.map(np.testing.assert_array_equal, verb(Q, V), expected[name])


@pytest.mark.slow
def test_without_jit() -> None:
    """`jax.disable_jit`: alone, over a batch, and the gradient."""

    def end(q: Any) -> Any:
        return simulate(SYSTEM, q, V, [0.0, 0.02], PARAMS).q[-1].sum()  # its steps are chosen

    expected, slope = end(Q), jax.grad(end)(Q)
    with jax.disable_jit():
        np.testing.assert_allclose(end(Q), expected, rtol=1e-13)
        np.testing.assert_allclose(jax.vmap(end)(np.stack([Q, Q])), [expected] * 2, rtol=1e-13)
        np.testing.assert_allclose(jax.grad(end)(Q), slope, rtol=1e-12)


@pytest.mark.slow
def test_empty_batches() -> None:
    none = np.zeros((0, 2))
    for name in ("simulate", "assemble", "acceleration"):
        found = quick(jax.vmap(VERBS[name]))(none, none)
        assert found.shape == ((0, 4, 2) if name == "simulate" else (0, 2))
    assert jax.vmap(lambda q: simulate(SYSTEM, q, V, TS, PARAMS).q)(none).shape == (0, 4, 2)
    total = jax.grad(
        lambda g: jax.vmap(lambda q: VERBS["simulate"](q, p={**PARAMS, "g": g}))(none).sum()
    )
    assert total(9.81) == 0.0
