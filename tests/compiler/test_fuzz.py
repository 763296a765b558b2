"""Random systems agree as native code and as plain `vmap`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler import explain, vectorize
from tests.compiler.fuzz import CHOICES, drawn, outcome
from tests.compiler.fuzz_operations import (
    INTEGERS,
    KINKED,
    OTHERS,
    SMOOTH,
    TRUTHS,
    Draw,
    N,
    Operation,
    Pool,
)

TABLES = {"smooth": SMOOTH, "kinked": KINKED, "integers": {**INTEGERS, **TRUTHS}, "others": OTHERS}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
def test_every_operation(name: str) -> None:
    """The value and a tangent of each operation alone, and which ones are native code."""
    draw = np.random.default_rng(3)
    numbers = {key: tuple(draw.random(CHOICES)) for key in TABLES[name]}
    x, y, dx = (jnp.asarray(draw.normal(size=(5, N))) for _ in range(3))

    def fn(x: Any, y: Any, dx: Any) -> Any:
        def alone(operation: Operation, key: str) -> Any:
            def of(x: Any) -> Any:
                return operation(Pool([x, y]), Draw(numbers[key]))

            value, tangent = jax.jvp(of, (x,), (dx,))
            return [value, tangent] if jnp.issubdtype(value.dtype, jnp.floating) else [value]

        return {key: alone(operation, key) for key, operation in TABLES[name].items()}

    told = repr(explain(fn, x, y, dx))
    assert ("plain vmap" in told) == (name == "others"), told
    mine, plain = jax.jit(vectorize(fn))(x, y, dx), jax.jit(jax.vmap(fn))(x, y, dx)
    for key, outs in plain.items():
        for a, b in zip(mine[key], outs, strict=True):
            assert a.dtype == b.dtype, key
            tolerance = 1e-12 if jnp.issubdtype(b.dtype, jnp.floating) else 0
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.parametrize("seed", [1, 3])
def test_random_systems(seed: int) -> None:
    """Derivatives of a random Lagrangian, force and constraint; `fuzz` compares any number."""
    assert outcome(drawn(seed)) == ""


@pytest.mark.slow
def test_many_random_systems() -> None:
    """By `make slow`: without optimizations XLA rounds a largest number anew for each use."""
    told = {seed: outcome(drawn(seed)) for seed in range(1020, 1023)}
    assert {seed: what for seed, what in told.items() if what} == {}
