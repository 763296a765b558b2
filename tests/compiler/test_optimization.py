"""Native code with and without LLVM's optimization."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from jaxmech.compiler import unoptimized, vectorize
from jaxmech.compiler.backends import cpu as program
from jaxmech.compiler.backends.cpu import BRIEF, FEW, MANY, SMALL, Kind, Program
from jaxmech.compiler.frontend.build import Kernel, function_kernel


@pytest.fixture
def as_users_do() -> Iterator[None]:
    """Compile with optimizations, which the quick tests do without."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def kernel(fn: Callable[[Array], Array]) -> Kernel:
    return function_kernel(jax.make_jaxpr(fn)(1.0))


def repeated(count: int) -> Callable[[Array], Array]:
    # Chaotic, so that another last bit of one sine changes the result.
    return lambda x: jax.lax.fori_loop(0, count, lambda k, x: x + jnp.sin(k * x) / 7, x)


def until_large(x: Array) -> Array:
    return jax.lax.while_loop(lambda x: x < 9, lambda x: x + jnp.cos(x) ** 2, x)


@pytest.mark.usefixtures("as_users_do")
@pytest.mark.parametrize("size", [1, 33])
def test_the_bits_do_not_depend_on_it(size: int) -> None:
    fn = repeated(BRIEF + 10)
    many = jnp.linspace(0.3, 50.0, size)
    optimized = vectorize(fn)(many)
    with unoptimized():
        plain = vectorize(fn)(many)
    np.testing.assert_array_equal(plain, optimized)


def is_optimized(fn: Callable[[Array], Array], kind: Kind) -> bool:
    program = Program(kernel(fn), frozenset({0}), kind)
    program.require_supported()
    return program._is_optimized


@pytest.mark.usefixtures("as_users_do")
def test_programs_that_run_briefly_do_without() -> None:
    assert not is_optimized(jnp.sin, Kind.ONE)
    assert not is_optimized(repeated(BRIEF - 10), Kind.ONE)
    assert is_optimized(repeated(BRIEF + 10), Kind.ONE)
    assert is_optimized(jnp.sin, Kind.SMALL)  # up to 256 trajectories
    assert is_optimized(until_large, Kind.ONE)
    with unoptimized():
        assert not is_optimized(until_large, Kind.ONE)
        assert not is_optimized(jnp.sin, Kind.SMALL)


@pytest.mark.usefixtures("as_users_do")
def test_the_flag_of_jax_is_followed() -> None:
    jax.config.update("jax_disable_most_optimizations", True)
    assert not is_optimized(jnp.sin, Kind.LARGE)


@pytest.mark.usefixtures("as_users_do")
def test_long_code_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(program.LONGEST_OPTIMIZED, Kind.ONE, 10)
    assert not is_optimized(until_large, Kind.ONE)
    assert is_optimized(until_large, Kind.LARGE)


@pytest.mark.usefixtures("as_users_do")
def test_code_that_does_not_fit_the_stack_computes_one_trajectory_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fn, many = repeated(20), jnp.linspace(0.3, 50.0, 33)

    def lanes() -> int:
        return Program(kernel(fn), frozenset({0}), Kind.SMALL).facts.lanes

    usual = vectorize(fn)(many)
    monkeypatch.setattr(program, "MOST_ON_STACK", 30)
    assert lanes() > 1  # optimized code keeps values in registers
    with unoptimized():
        assert lanes() == 1
        np.testing.assert_array_equal(vectorize(fn)(many), usual)


AVX_512, AVX2, SSE = (8, 32), (4, 16), (2, 16)


@pytest.mark.parametrize(
    ("registers", "few", "many"), [(AVX_512, 32, 16), (AVX2, 8, 8), (SSE, 4, 4)]
)
def test_lanes_fill_the_registers_of_the_processor(
    registers: tuple[int, int], few: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "vector_registers", lambda: registers)

    def lanes(fn: Callable[[Array], Array], kind: Kind, x: Any = 1.0) -> int:
        found = function_kernel(jax.make_jaxpr(fn)(x))
        return Program(found, frozenset({0}), kind).facts.lanes

    def long(x: Array) -> Array:
        for k in range(FEW):
            x = jnp.sin(x) + k
        return x

    def carrying(x: Array) -> Array:
        def turn(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            return (*state[1:], jnp.sin(state[0]))

        return jax.lax.fori_loop(0, 20, turn, tuple(x + k for k in range(MANY + 1)))[0]

    assert (lanes(jnp.sin, Kind.LARGE), lanes(long, Kind.LARGE)) == (few, many)
    assert lanes(carrying, Kind.LARGE) == registers[0]
    assert lanes(jnp.sin, Kind.SMALL, np.float32(1.0)) == 2 * registers[0]
    assert (lanes(long, Kind.SMALL), lanes(long, Kind.ONE)) == (registers[0], 1)


@pytest.mark.slow
@pytest.mark.as_users
def test_the_bits_do_not_depend_on_the_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    fn, many = repeated(40), jnp.linspace(0.3, 50.0, SMALL + 9)
    found = []
    for registers in (AVX_512, AVX2, SSE):
        monkeypatch.setattr(program, "vector_registers", lambda own=registers: own)
        jax.clear_caches()
        found.append(vectorize(fn)(many))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
