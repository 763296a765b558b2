"""Operations that combine types, and types that native code does not have."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxmech as jm
from jaxmech.compiler import NativeCodeWarning, explain, vectorize
from tests.compiler.test_types import TYPES, edges

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(6, 3))
TABLE = np.linspace(0.0, 1.0, 200)
Function = Callable[[Any], Any]


def agree(fn: Function, x: Any = X, *, native: bool = True) -> Any:
    told = repr(explain(fn, x))
    assert ("plain vmap" not in told) == native, told
    mine, plain = jax.jit(vectorize(fn))(x), jax.jit(jax.vmap(fn))(x)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(plain), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6 if b.dtype == np.float32 else 1e-14)
    return mine


def next_number(x: Any, kind: str) -> Any:
    """The next number away from zero, by its bits as an integer."""
    bits = lax.bitcast_convert_type(x, jnp.dtype(f"{kind}{8 * x.dtype.itemsize}"))
    return lax.bitcast_convert_type(bits + 1, x.dtype)


@pytest.mark.parametrize("old", TYPES, ids=str)
def test_conversions(old: np.dtype) -> None:
    """Of arguments and of constants: from floats they saturate, between integers they wrap."""
    values = np.array(edges(old))

    def fn(x: Any) -> Any:
        # The barrier keeps JAX, but not native code, from converting a constant itself.
        constants = [lax.optimization_barrier(jnp.asarray(a)) for a in values]
        return [[lax.convert_element_type(a, new) for a in (x, *constants)] for new in TYPES]

    found = agree(fn, values)
    for row in found:
        np.testing.assert_array_equal(np.stack(row[1:], 1)[0], row[0])


MIXED: dict[str, Function] = {
    "truths counted": lambda x: jnp.dot(x > -9, x > -9, preferred_element_type=jnp.int32),
    "truths as floats": lambda x: jnp.dot(x > -9, x > 0, preferred_element_type=jnp.float32),
    "wider integers": lambda x: jnp.dot(
        (99 * x).astype(jnp.int8), (99 * x).astype(jnp.int8), preferred_element_type=jnp.int32
    ),
    "narrow integers": lambda x: jnp.dot((99 * x).astype(jnp.int8), (99 * x).astype(jnp.int8)),
    "integers and floats": lambda x: lax.dot_general(
        x.astype(jnp.float32), (5 * x).astype(jnp.int32), (((0,), (0,)), ((), ()))
    ),
    "exponents of 32 bits": lambda x: x.astype(jnp.float32) ** jnp.array([3, -2, 0], jnp.int32),
    "small exponents": lambda x: lax.pow(x, jnp.array([3, -2, 0], jnp.int8)),
    "scalar set": lambda x: (x[0].at[()].set(x[1]), x[0].at[()].add(2 * x[1])),
    "scalars moved": lambda x: (
        jnp.flip(x[0]),
        x[0].reshape(()),
        jnp.squeeze(x[:1]),
        lax.slice(x[0], (), ()),
        jnp.transpose(x[0]),
    ),
    "signed places": lambda x: jnp.asarray(TABLE)[(40 * x[0]).astype(jnp.int8)],
    "unsigned places": lambda x: jnp.asarray(TABLE)[(90 * jnp.abs(x[0])).astype(jnp.uint8)],
    "small places in a row": lambda x: jnp.append(x, x)[(3 * x).astype(jnp.int8)],
    "update at small places": lambda x: x.at[(3 * x).astype(jnp.int8)].add(x[::-1]),
    "fill at small places": lambda x: x.at[(3 * x).astype(jnp.uint8)].get(mode="fill"),
    "small start of a slice": lambda x: lax.dynamic_slice(x, [(2 * x[0]).astype(jnp.int8)], [2]),
    "place in an argument": lambda x: lax.dynamic_slice(x, [(2 * x[0]).astype(jnp.uint8)], [1]),
    "chosen place": lambda x: jnp.where(
        x[0] > 0, jnp.asarray(TABLE)[jnp.where(x[0] > 0, jnp.int32(9 * x[1]), 3)], x[2]
    ),
    "empty": lambda x: (
        lax.reduce_max(x[:0] > 0, (0,)),
        lax.reduce_and((5 * x[:0]).astype(jnp.int8), (0,)),
        lax.reduce_max((5 * x[:0]).astype(jnp.int8), (0,)),
        x.sum() * 0,
    ),
    "bits": lambda x: [
        fn((90 * x).astype(jnp.int32), (0,))
        for fn in (lax.reduce_and, lax.reduce_or, lax.reduce_xor)
    ],
    "the same bits": lambda x: [
        next_number(y, kind)
        for y in (x, x.astype(jnp.float32), jnp.full(3, 1.5, jnp.float32))
        for kind in ("int", "uint")
    ],
    "many truths": lambda x: (
        (jnp.tile(x, 60) > -9).sum(dtype=jnp.int8) == jnp.int8(-76),
        (jnp.tile(x, 60) > 9).sum(dtype=jnp.uint8) > jnp.uint8(0),
    ),
    "opposite of an index": lambda x: lax.fori_loop(
        0, 4, lambda k, y: y + x[-k % 3] * (-k // 3) + (k - 5) % 4, 0.0
    ),
    "divided by a power of two": lambda x: (x / 2.0**1000, x / 2.0**-1000, x / jnp.inf),
    "select of many": lambda x: lax.select_n(
        jnp.argmax(x).astype(jnp.int32), x[0], lax.select_n(x[0] > 0, x[1], x[0]), x[2]
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_agrees(name: str) -> None:
    agree(MIXED[name])


REFUSED: dict[str, tuple[Function, str]] = {
    "complex": (lambda x: jnp.abs(x * 1j + 2.0), "of type complex128"),
    "half": (lambda x: x.astype(jnp.float16) * 3, "of type float16"),
    "bfloat": (lambda x: (x.astype(jnp.bfloat16) + 1).astype(float), "of type bfloat16"),
    "key": (lambda x: x + jax.random.normal(jax.random.key(3), ()), "the primitive `random_"),
    "constant": (lambda x: x + (jnp.arange(3) * 1j).real, "of type complex128"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_types_are_left_to_vmap_with_a_reason(name: str) -> None:
    fn, reason = REFUSED[name]

    def in_a_loop(x: Any) -> Any:
        return lax.fori_loop(0, 20, lambda k, y: 0.5 * jnp.real(fn(y)).astype(float), x)

    with pytest.warns(NativeCodeWarning, match=reason):
        agree(fn, native=False)
    with pytest.warns(NativeCodeWarning, match=reason):
        agree(in_a_loop, native=False)


@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
def test_keys_are_arguments_and_results() -> None:
    keys = jax.random.split(jax.random.key(0), 6)

    def walk(x: Any, key: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            y, key = carry
            key, now = jax.random.split(key)
            return (0.9 * y + jax.random.normal(now, (3,)), key), y.sum()

        return lax.scan(step, (x, key), None, length=12)

    mine, plain = jax.jit(vectorize(walk))(X, keys), jax.vmap(walk)(X, keys)
    np.testing.assert_allclose(mine[0][0], plain[0][0], rtol=1e-14)
    np.testing.assert_allclose(mine[1], plain[1], rtol=1e-14)
    assert (jax.random.key_data(mine[0][1]) == jax.random.key_data(plain[0][1])).all()


TS = jnp.linspace(0.0, 1.0, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
def test_a_typed_key_among_the_parameters() -> None:
    """Alone and in a batch, known or traced, with default steps, and closed over."""
    key = jax.random.key(7)
    pushed = -0.1 * jax.random.normal(key, (1,))

    def force(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.1 * jax.random.normal(p["key"] if p else key, (1,))

    system = jm.System(lambda q, v, t, p: 0.5 * v @ v, force=force, coordinates=("x",))
    expected = -0.5 * pushed  # after one unit of time, from rest
    alone = jm.simulate(system, [0.0], [0.0], TS, {"key": key})
    np.testing.assert_allclose(alone.q[-1], expected, rtol=1e-12)
    np.testing.assert_allclose(jm.simulate(system, [0.0], [0.0], TS).q[-1], expected, rtol=1e-12)

    def end(key: Any, q: Any) -> Any:
        return jm.simulate(system, q, [0.0], TS, {"key": key}, steps=jm.FixedSteps(2)).q[-1]

    keys = jnp.stack([jax.random.key(1), key])
    ends, slopes = jax.jit(jax.vmap(jax.value_and_grad(lambda k, q: end(k, q).sum(), 1)))(
        keys, jnp.zeros((2, 1))
    )
    np.testing.assert_allclose(ends[1:], expected, rtol=1e-12)
    np.testing.assert_allclose(slopes, 1.0, rtol=1e-12)
    motion = jm.acceleration(system, [0.0], [0.0], 0.0, {"key": key})
    np.testing.assert_allclose(motion.qdd, -pushed, rtol=1e-12)
