"""What runs as plain `vmap` is said once, and no error of the compiler reaches a user."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler import NativeCodeWarning, batched, explain, off
from jaxmech.compiler.backends import cpu as program
from jaxmech.compiler.frontend import primitives
from jaxmech.utils.caller import forget_shown

X = jnp.linspace(0.5, 1.5, 12).reshape(3, 4)


def sorting(x: Any) -> Any:
    return jax.lax.fori_loop(0, 40, lambda _, y: jnp.sort(-0.9 * y), x)


def swinging(x: Any) -> Any:
    """A loop with equations around it, which are compiled with it."""
    return jnp.cos(jax.lax.fori_loop(0, 40, lambda _, y: y + 0.01 * jnp.sin(y), 2.0 * x))


def shown(run: Any, *args: Any) -> list[warnings.WarningMessage]:
    """The warnings of the first run in a process with the filters of Python's default."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        forget_shown()
        for _ in range(2):
            run(*args)
    return found


def test_a_loop_under_plain_vmap_is_named_once() -> None:
    run = jax.vmap(batched(sorting))
    (warning,) = shown(run, X)
    assert warning.category is NativeCodeWarning
    assert warning.filename == __file__
    text = str(warning.message)
    assert text.startswith("A loop runs as plain `jax.vmap` instead of native code")
    assert "because of the primitive `sort`" in text
    assert "because of the primitive `sort`" in repr(explain(sorting, X))


def test_a_single_trajectory_warns_like_a_batch() -> None:
    (warning,) = shown(jax.jit(batched(sorting)), X[0])
    assert "because of the primitive `sort`" in str(warning.message)


def test_plain_vmap_by_choice_or_outside_of_loops_is_quiet() -> None:
    assert shown(jax.vmap(batched(lambda x: swinging(jnp.sort(x)))), X) == []
    with off():
        assert shown(jax.vmap(batched(sorting)), X) == []


def raising(error: Exception) -> Any:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fails


FAULTS = {
    "reading": (primitives.PRIMITIVES, "sin", KeyError("sine")),
    "an assertion": (primitives.PRIMITIVES, "sin", AssertionError()),
    "writing": (program.Body, "write", NotImplementedError("no such instruction")),
    "LLVM": (program, "compile_module", RuntimeError("LLVM IR parsing error\n<string>:1:2")),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("alone", [False, True])
def test_errors_of_the_compiler_become_plain_vmap(
    name: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, part, error = FAULTS[name]
    patch = monkeypatch.setitem if isinstance(place, dict) else monkeypatch.setattr
    patch(place, part, raising(error))
    x = X[0] + len(name) if alone else X + len(name)  # a program of its own
    run = jax.jit(batched(swinging)) if alone else jax.jit(jax.vmap(batched(swinging)))
    with pytest.warns(NativeCodeWarning, match=f"an error of the compiler, {type(error).__name__}"):
        found = run(x)
    np.testing.assert_allclose(found, swinging(x), rtol=1e-12)


def test_an_error_in_the_equations_around_a_loop_leaves_the_loop_native(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(primitives.PRIMITIVES, "cos", raising(KeyError("cosine")))
    with pytest.warns(NativeCodeWarning, match="an error of the compiler, KeyError: 'cosine'"):
        found = jax.jit(jax.vmap(batched(swinging)))(X)
    np.testing.assert_allclose(found, swinging(X), rtol=1e-12)
    parts = explain(swinging, X).parts
    assert {part.name: bool(part.reason) for part in parts} == {
        "loop of 40 iterations": False,
        "loop's beginning or end": True,
    }
