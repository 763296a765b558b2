"""Native code computes what plain `vmap` does: every operation alone, and random compositions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jaxmech.compiler import explain, vectorize
from tests.compiler.operations import (
    ANY,
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
CHOICES = 8  # random numbers for each operation
# The name of an operation, and what it draws: which of the values so far, and with which constants.
STEP = st.tuples(st.sampled_from(list(ANY)), st.integers(0, 99))
TOLERANCE = {"float64": 1e-9, "float32": 2e-3}

pytestmark = [
    pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning"),
    pytest.mark.filterwarnings("ignore:scatter inputs:FutureWarning"),
]


def numbers(seed: int) -> Draw:
    return Draw(tuple(np.random.default_rng(seed).random(CHOICES)))


@pytest.mark.parametrize("name", TABLES)
def test_every_operation(name: str) -> None:
    """The value and a tangent of each operation alone, and which ones are native code."""
    draw = np.random.default_rng(3)
    x, y, dx = (jnp.asarray(draw.normal(size=(5, N))) for _ in range(3))

    def fn(x: Any, y: Any, dx: Any) -> Any:
        def alone(operation: Operation) -> Any:
            value, tangent = jax.jvp(lambda x: operation(Pool([x, y]), numbers(3)), (x,), (dx,))
            return [value, tangent] if jnp.issubdtype(value.dtype, jnp.floating) else [value]

        return {key: alone(operation) for key, operation in TABLES[name].items()}

    told = repr(explain(fn, x, y, dx))
    assert ("plain vmap" in told) == (name == "others"), told
    mine, plain = jax.jit(vectorize(fn))(x, y, dx), jax.jit(jax.vmap(fn))(x, y, dx)
    for key, outs in plain.items():
        for a, b in zip(mine[key], outs, strict=True):
            assert a.dtype == b.dtype, key
            tolerance = 1e-12 if jnp.issubdtype(b.dtype, jnp.floating) else 0
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=key)


def compiled(fn: Any) -> Any:
    """`jax.jit` by which XLA computes every number once.

    Fused operations compute a number anew for each of its uses, without optimization by other
    roundings. Then no number equals the largest one, by which JAX divides in gradients.
    """
    return jax.jit(fn, compiler_options={"xla_disable_hlo_passes": "fusion"})


@pytest.mark.slow
@settings(max_examples=15, phases=[Phase.generate])  # shrinking takes minutes
@given(st.lists(STEP, min_size=4, max_size=12), st.sampled_from([*TOLERANCE]))
def test_random_compositions(steps: list[tuple[str, int]], dtype: str) -> None:
    """Value, gradient and tangent agree, with NaN in the same members."""
    steps = [step for step in steps if step[0] != "while"]  # without a derivative in reverse mode

    def total(x: Any, y: Any) -> Any:
        pool = Pool([x, y])
        for name, seed in steps:
            pool.add(ANY[name](pool, numbers(seed)))
        ends = [*pool.kinds["f"][2:], *(i % 5 for i in pool.kinds["i"][-2:]), *pool.kinds["b"][-2:]]
        return sum(jnp.tanh(end.astype(x.dtype)).sum() * (k % 3 + 1) for k, end in enumerate(ends))

    def fn(x: Any, y: Any, dx: Any) -> Any:
        return (*jax.value_and_grad(total)(x, y), jax.jvp(lambda x: total(x, y), (x,), (dx,))[1])

    draw = np.random.default_rng(5)
    args = [jnp.asarray(draw.normal(size=(3, N)), dtype) for _ in range(3)]
    one = compiled(fn)  # by member: without fusion, XLA gets gradients of a batched sort wrong
    members = [one(*(arg[i] for arg in args)) for i in range(3)]
    for mine, plain in zip(
        compiled(vectorize(fn))(*args), map(jnp.stack, zip(*members, strict=True)), strict=True
    ):
        assert mine.dtype == plain.dtype
        a, b = (np.asarray(found, float).reshape(3, -1) for found in (mine, plain))
        lost = np.isnan(b).any(1)
        np.testing.assert_array_equal(np.isnan(a).any(1), lost)
        scale = 1 + np.abs(b[~lost]).max(initial=0.0)
        np.testing.assert_allclose(a[~lost], b[~lost], rtol=0, atol=TOLERANCE[dtype] * scale)
