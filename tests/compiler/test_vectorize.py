"""Functions as lanes agree with `jax.vmap`."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import NativeCodeWarning, batched, explain, vectorize
from jaxmech.compiler.backends.cpu import Program
from jaxmech.compiler.frontend.build import function_kernel
from jaxmech.compiler.ir import loops as ir_loops
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.linalg import column_space_projector

N = 4
Function = Callable[[Any, Any], Any]


def batch(seed: int, size: int) -> tuple[jax.Array, jax.Array]:
    draw = np.random.default_rng(seed)
    return jnp.asarray(draw.normal(size=(size, N))), jnp.asarray(draw.normal(size=(size, N, N)))


def assert_agrees(fn: Function, seed: int = 0, size: int = 5, in_axes: Any = 0) -> None:
    x, A = batch(seed, size)
    args = tuple(a if axis == 0 else a[0] for a, axis in zip((x, A), axes_of(in_axes), strict=True))
    mine = jax.jit(vectorize(fn, in_axes))(*args)
    plain = jax.jit(jax.vmap(fn, in_axes))(*args)
    assert jax.tree.structure(mine) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(plain), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def axes_of(in_axes: Any) -> tuple[Any, Any]:
    return (in_axes, in_axes) if isinstance(in_axes, int) else in_axes


def loop(fn: Callable[[Any], Any], times: int) -> Callable[[Any], Any]:
    return lambda x: lax.fori_loop(0, times, lambda _, y: fn(y), x)


def saving(x: Any, A: Any) -> Any:
    """A loop that reads a sequence and saves two, run backwards, with an integer in its carry."""

    def body(carry: Any, element: Any) -> Any:
        y, count = carry
        y = jnp.tanh(A @ y + element)
        return (y, count + 1), (y[:2], y.sum() > 0)

    sequence = jnp.linspace(0.0, 1.0, 12)[:, None] * jnp.ones(N)[None]
    return lax.scan(body, (x, 0), sequence, reverse=True)


def nested(x: Any, A: Any) -> Any:
    """A loop that saves, inside of a loop, and one that reads the saved results."""

    def outer(y: Any, _: Any) -> Any:
        y, saved = lax.scan(lambda z, _: (0.9 * jnp.sin(A @ z / 4), z), y, None, length=10)
        total, _ = lax.scan(lambda t, z: (t + z * z, None), jnp.zeros(N), saved, reverse=True)
        return y + 0.1 * total / N, total[0]

    return lax.scan(outer, x, None, length=11)


def until_large(x: Any, A: Any) -> Any:
    """A loop with 0 to 25 iterations, depending on the numbers."""

    def more(carry: Any) -> Any:
        y, count = carry
        return (y.sum() < A[0, 0] + 3) & (count < 25)

    def body(carry: Any) -> Any:
        y, count = carry
        return y + 0.3 * jnp.abs(jnp.sin(A[1] + y)), count + 1

    return lax.while_loop(more, body, (x, 0))


def much(x: Any, A: Any) -> Any:
    """A computation that is large enough for a branch."""
    return jnp.sin(A @ x) * x


def two_parts(x: Any, A: Any) -> Any:
    """A case has two results: one is always needed, the other within another case."""
    first, second = lax.cond(x[0] > 0, lambda: (much(x, A), much(A[1], A)), lambda: (x, A[0]))
    return lax.cond(x[1] > 0, lambda: much(second, A) + second, lambda: first), first


def constants_in_a_loop(x: Any, A: Any) -> Any:
    """A case that depends on nothing in the loop, two results of which are constants."""

    def body(_: Any, carry: Any) -> Any:
        y, count = carry
        z, more = lax.cond(x[0] > 0, lambda: (much(x, A), 5), lambda: (x, 3))
        return y / 2 + z, count + more

    return lax.fori_loop(0, 12, body, (x, 0))


def last_large(form: str) -> Function:
    """A loop that keeps its last large states, and other uses of those states."""

    def fn(x: Any, A: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            y, last, count = carry

            def kept() -> Any:
                return jnp.concatenate([last[1:], much(y, A)[None]]), count + 1

            new, count = lax.cond(y[0] > 0.1, kept, lambda: (last, count))
            y = jnp.cos(A @ y / 2) * y
            if form == "read":
                y = y + last[0, 1] / 9
            if form == "in a loop":
                y = lax.fori_loop(0, 11, lambda _, z: jnp.sin(z + last[1] / 9), y)
            if form == "swapped":
                new = new[::-1]
            saved = {"saved": last[2, 0], "new saved": new[2, 0]}.get(form, y[0])
            return (y, new, count), saved

        return lax.scan(body, (x, A[:3], 0), None, length=13)

    return fn


LAST_LARGE = {form: form == "alone" for form in (
    "alone", "read", "in a loop", "swapped", "saved", "new saved",
)}  # fmt: skip

FUNCTIONS: dict[str, Function] = {
    "logic": lambda x, A: (
        ~(x > 0),
        (x > 0) & True,
        (x > 0) | (x < A[0]),
        ~~(x > 0),
        (x > 0) & False,
    ),
    "transcendental": lambda x, A: (jnp.sin(x) * jnp.cos(x), jnp.exp(x), jnp.arctan2(x, x[::-1])),
    "other functions": lambda x, A: (
        jnp.log2(jnp.abs(x)),
        jnp.log10(jnp.abs(x)),
        jnp.exp2(x),
        jnp.cbrt(x),
        jnp.sinh(x),
    ),
    "their derivatives": lambda x, A: tuple(
        jax.vmap(jax.grad(fn))(x / 4)
        for fn in (
            jnp.tanh,
            jnp.arcsin,
            jnp.arctanh,
            lax.erf,
            jnp.sinc,
            lambda y: jnp.log2(2 + y),
            lambda y: jnp.polyval(A[0], y),
        )
    ),
    "reductions": lambda x, A: (
        A.sum(0),
        A.max(1),
        A.min(),
        jnp.prod(x),
        jnp.all(x > -9),
        x.mean(),
    ),
    "padding": lambda x, A: (jnp.pad(x, (1, 2), constant_values=7.0), jnp.diag(x), jnp.triu(A)),
    "choices": lambda x, A: (jnp.where(x > 0, x, A[0]), jnp.clip(x, -0.5, 0.5), jnp.sign(x)),
    "largest": lambda x, A: (jnp.argmax(x), jnp.argmin(A, axis=0), jnp.nanargmin(x)),
    "cond on a loop index": lambda x, A: lax.fori_loop(
        0, 4, lambda k, y: lax.cond(k == 2, lambda z: -z, lambda z: z + 1, y), x
    ),
    "rare case": lambda x, A: lax.cond(x[0] > 0.5, lambda: much(x, A), lambda: x),
    "rare case first": lambda x, A: lax.cond(x[0] < 0.5, lambda: x, lambda: much(x, A)),
    "rare cases of one kind": lambda x, A: (
        lax.cond(x[0] > 0.5, lambda: (much(x, A), x[1] > 0, 3), lambda: (x, False, 2)),
        lax.cond(x[1] > 0.5, lambda: much(x, A) + much(A[0], A), lambda: x),
    ),
    "rare case in a rare case": lambda x, A: lax.cond(
        x[0] > 0,
        lambda: lax.cond(x[1] > 0, lambda: much(x, A), lambda: A[0]) + much(A[1], A),
        lambda: x,
    ),
    "rare case that takes a part of another": two_parts,
    "rare case that has a loop": lambda x, A: lax.cond(
        x[0] > 0.5, lambda: loop(lambda y: jnp.tanh(much(y, A)), 12)(x), lambda: x
    ),
    "rare case in a loop": lambda x, A: loop(
        lambda y: lax.cond(y[0] > 0.1, lambda: much(x, A) / 9 + much(y, A) / 9, lambda: y + 0.05),
        12,
    )(x),
    "rare case that changes nothing in a loop": lambda x, A: loop(
        lambda y: y + lax.cond(x[0] > 0, lambda: much(x, A), lambda: x), 12
    )(x),
    "rare case that gives constants in a loop": constants_in_a_loop,
    "derivative of a rare case": lambda x, A: jax.jacfwd(
        lambda y: lax.cond(y[0] > 0.5, lambda: much(y, A), lambda: y)
    )(x),
    "gradient of a rare case": lambda x, A: jax.grad(
        lambda y: lax.cond(y[0] > 0.5, lambda: much(y, A), lambda: y).sum()
    )(x),
    "integers": lambda x, A: (jnp.arange(3) // 2, (x > 0).sum(), jnp.int32(3) * jnp.arange(N)),
    "constants": lambda x, A: (jnp.eye(N) @ x, jnp.full(2, jnp.nan), jnp.zeros((0, 3)), 2.0),
    "no loop": lambda x, A: lax.scan(lambda y, row: (y + row, y @ A), x, A[:0]),
    "long loop": lambda x, A: loop(lambda y: jnp.tanh(A @ y) + 0.1, 20)(x),
    "saving": saving,
    "nested": nested,
    "gradient of a loop": lambda x, A: jax.grad(
        lambda y: loop(lambda z: jnp.sin(A @ z), 12)(y).sum()
    )(x),
    "checkpoint": lambda x, A: jax.grad(
        lambda y: loop(jax.checkpoint(lambda z: jnp.tanh(A @ z)), 9)(y).sum()
    )(x),
    "while": until_large,
    "while in a loop": lambda x, A: loop(lambda y: until_large(y - 2, A)[0] / 4, 12)(x),
    "while in a rare case": lambda x, A: lax.cond(
        x[0] > 0, lambda: until_large(x, A), lambda: (x, 0)
    ),
    "hessian": lambda x, A: jax.hessian(lambda y: jnp.sin(y @ A @ y))(x),
    "parts of an array": lambda x, A: (
        [jnp.sin(row) for row in jnp.unstack(A)],
        jnp.split(x, [1, 3]),
        # An array without numbers has no parts.
        lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1 + sum(jnp.unstack(y[:0])), x),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_lanes(name: str) -> None:
    x, A = batch(0, 5)
    assert "plain vmap" not in repr(explain(FUNCTIONS[name], x, A))
    assert_agrees(FUNCTIONS[name])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_largest_number_equals_one_of_the_numbers(dtype: Any) -> None:
    """In gradients of a maximum, which divide by the number of its equals.

    Not compared with `jax.vmap`: XLA may fuse the sums with the maximum and with the comparison,
    and round the product before the sum for one of them only.
    """
    weights = np.array([0.1, -0.7, 1.3], dtype)

    def largest(x: Any) -> Any:
        sums = weights * x[0] + x[1]
        return sums.max(), sums - sums.max()

    x = jnp.asarray(np.random.default_rng(2).normal(size=(64, 2)), dtype)
    slopes, rest = jax.jit(vectorize(jax.jacrev(largest)))(x)
    steepest = np.where(x[:, 0] > 0, weights[2], weights[1])
    np.testing.assert_array_equal(slopes, np.stack([steepest, np.ones(64, dtype)], 1))
    np.testing.assert_array_equal(rest[:, :, 0], weights - steepest[:, None])
    np.testing.assert_array_equal(rest[:, :, 1], np.zeros((64, 3)))


@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
@pytest.mark.parametrize("largest", [1024, 10])
def test_a_short_loop_that_passes_on_what_a_loop_in_it_saves(
    monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    """A long sequence is no array of scalars, so that it cannot be stacked with others."""
    monkeypatch.setattr(ir_loops, "LARGEST_STACKED", largest)

    def inner(y: Any, _: Any) -> Any:
        return lax.scan(lambda z, _: (jnp.sin(z) * 0.9, z), y, None, length=12)

    def outer(_: Any, x: Any) -> Any:
        y, saved = lax.scan(inner, x, None, length=3)
        total, _ = lax.scan(lambda t, block: (t + block[4], None), y, saved)
        return total / 4

    def sequences(x: Any, A: Any) -> Any:
        return lax.fori_loop(0, 10, outer, x)

    is_too_long = "stacked outputs are used outside" in repr(explain(sequences, *batch(0, 5)))
    assert is_too_long == (largest == 10)
    assert_agrees(sequences)


def saved_whole(x: Any, A: Any) -> tuple[Any, Any]:
    """Operations on all saved results of loops, in both directions, alone and in another loop."""

    def rows(_: Any, y: Any) -> Any:
        z, up = lax.scan(lambda z, row: (jnp.sin(row @ z) * z, z), y, jnp.tile(A, (3, 1)))
        _, down = lax.scan(lambda t, w: (t + w @ z, t), 0.1, up, reverse=True)
        return jnp.tanh(y + up.T @ down + up[10] * jnp.max(down))

    return lax.fori_loop(0, 10, rows, x), rows(0, x)


def test_stacked_outputs_can_be_used_like_arrays() -> None:
    assert "plain vmap" not in repr(explain(saved_whole, *batch(0, 5)))
    assert_agrees(saved_whole, size=67)
    assert_agrees(lambda x, A: jax.grad(lambda y: saved_whole(y, A)[1].sum())(x))


def test_rows_of_twenty_equations_are_orthogonalized_within_one_kernel() -> None:
    draw = np.random.default_rng(0)
    rows = jnp.asarray(draw.normal(size=(5, 22, 34)))
    whole = explain(lambda A: column_space_projector(A[1:] - A[:-1]), rows)
    assert repr(whole).startswith("function: ")
    assert len(whole.parts) == 1


@pytest.mark.parametrize("at", [0, 5, 11])
def test_one_saved_number_shows_no_nan_of_the_others(at: int) -> None:
    """A product with zero is NaN where the square root is, unless the first one shows it."""

    def hidden(x: Any) -> Any:
        def root(k: Any, _: Any) -> tuple[Any, tuple[Any, Any]]:
            y = jnp.sqrt(x[0] - k)
            return k + 1, (y, 0.0 * y)

        _, (roots, zeros) = lax.scan(root, -0.5, None, length=12)
        return roots[0], zeros[at]

    x = jnp.array([[20.0], [5.0], [-1.0]])
    assert repr(explain(hidden, x)).startswith("function: ")
    mine, plain = vectorize(hidden)(x), jax.vmap(hidden)(x)
    shown = [np.isnan(np.stack(outs)).any(0).tolist() for outs in (mine, plain)]
    assert shown[0] == shown[1] == [False, at == 11, True]


@pytest.mark.parametrize("size", [1, 7, 64, 65, 200])
def test_any_size_of_a_batch(size: int) -> None:
    assert_agrees(saving, size=size)


@pytest.mark.parametrize("in_axes", [(0, None), (None, 0)])
def test_shared_arguments(in_axes: Any) -> None:
    assert_agrees(saving, in_axes=in_axes)


def test_an_argument_without_numbers() -> None:
    x, empty = batch(0, 5)[0], np.zeros((5, 0, 3))

    def fn(x: Any, empty: Any) -> Any:
        return loop(lambda y: jnp.sin(y) + empty.sum(), 20)(x)

    for run in (vectorize(fn), jax.vmap(batched(fn))):
        np.testing.assert_allclose(jax.jit(run)(x, empty), jax.vmap(fn)(x, empty), rtol=1e-13)


def test_a_trajectory_has_the_same_bits_in_every_place() -> None:
    x, A = batch(1, 130)
    run = jax.jit(vectorize(saving))
    (whole, _), _ = run(x, A)
    (turned, _), _ = run(x[::-1], A[::-1])
    np.testing.assert_array_equal(whole, turned[::-1])


def refused(*args: Any, **params: Any) -> Any:
    raise UnsupportedError("no instruction")


def test_plain_vmap_where_a_back_end_has_no_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "prepare", refused)
    run = jax.jit(vectorize(nested))
    with pytest.warns(NativeCodeWarning, match="because of no instruction"):
        text = run.lower(*batch(0, 5)).as_text()
    assert "custom_call" not in text
    with pytest.warns(NativeCodeWarning, match="because of no instruction"):
        assert_agrees(nested)


@pytest.mark.parametrize("make", [vectorize, lambda fn: jax.vmap(batched(fn))])
def test_the_platform_is_chosen_when_a_program_is_lowered(make: Callable[..., Any]) -> None:
    """One trace serves all platforms."""
    trace = jax.jit(make(nested)).trace(*batch(0, 5))
    for platform, native in (("tpu", False), ("cpu", True), ("rocm", False)):
        text = trace.lower(lowering_platforms=(platform,)).as_text()
        assert ("stablehlo.custom_call @jaxmech_" in text) == native
        assert ("stablehlo.while" in text) != native


@pytest.mark.parametrize("make", [vectorize, lambda fn: jax.vmap(batched(fn))])
def test_one_program_for_several_platforms(make: Callable[..., Any]) -> None:
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in _custom_calls(make)]
    export = jax.export.export(
        jax.jit(make(saving)), platforms=("cpu", "tpu"), disabled_checks=checks
    )
    x, A = batch(0, 5)
    found = jax.tree.leaves(export(x, A).call(x, A))
    for mine, plain in zip(found, jax.tree.leaves(jax.vmap(saving)(x, A)), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-12)


def _custom_calls(make: Callable[..., Any]) -> list[str]:
    text = jax.jit(make(saving)).lower(*batch(0, 5)).as_text()
    return re.findall(r"custom_call @(\w+)", text)


FALLBACKS: dict[str, tuple[Function, str]] = {
    "sort": (lambda x, A: jnp.sort(x) + A[0], "the primitive `sort`"),
    "decomposition": (lambda x, A: jnp.linalg.svd(A)[1] + x, "the primitive `svd`"),
    "computed index": (
        lambda x, A: jnp.zeros(5000).at[(x > 0).sum()].set(1.0)[:N] + x,
        "a computed index into a large array",
    ),
    "large": (lambda x, A: jnp.ones((600, 600)) * x[0], "numbers"),
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_unsupported_functions_fall_back_with_a_reason(name: str) -> None:
    fn, reason = FALLBACKS[name]
    assert reason in repr(explain(fn, *batch(0, 5)))
    with pytest.warns(NativeCodeWarning, match=reason):
        assert_agrees(fn)


def test_loops_are_native_code_in_functions_that_fall_back() -> None:
    def fn(x: Any, A: Any) -> Any:
        return loop(lambda y: jnp.tanh(A @ y), 20)(jnp.sort(x)) + jnp.linalg.svd(A)[1]

    assert "loop of 20 iterations" in repr(explain(fn, *batch(0, 5)))
    assert "plain vmap" not in repr(explain(fn, *batch(0, 5)))
    assert_agrees(fn)


def test_zeros_are_folded_and_equal_nodes_shared() -> None:
    x, A = batch(0, 5)
    sparse = explain(lambda x, A: jnp.eye(N) @ x * 1.0 + 0.0, x, A).parts[0]
    assert sparse.operations == 0
    assert sparse.requested > N**2
    shared = explain(lambda x, A: (x * x) + x * x - jnp.square(x), x, A).parts[0]
    assert shared.operations == 3 * N


def test_indices_that_are_constants_are_known_before_a_loop() -> None:
    """Otherwise they choose among all rows, by selects, and the zeros of these are not folded."""
    rows = np.array([0, 2])

    def fn(x: Any, A: Any) -> Any:
        return loop(jnp.tanh, 40)(A[rows].sum(0) + x)

    (part,), (known,) = (
        explain(f, *batch(0, 5)).parts
        for f in (fn, lambda x, A: loop(jnp.tanh, 40)(A[0] + A[2] + x))
    )
    assert part.operations == known.operations
    assert_agrees(fn)


def test_nodes_of_a_rare_case_are_computed_in_its_branch() -> None:
    def fn(x: Any, A: Any) -> Any:
        needed, common = A @ x, A @ A[0]
        rare = jnp.sin(common) * jnp.cos(needed) + (A.T @ x)
        return lax.cond(needed[0] > 0, lambda: rare, lambda: common), common

    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.ones(N), jnp.ones((N, N))))
    nodes, live = kernel.reader.graph.nodes, kernel.live
    (own,) = live.branches.values()
    always = [nodes[i].op for i in live.nodes]
    assert not {"sin", "cos"} & set(always)
    assert always.count("mul") == N + N**2  # one row of A @ x and all of A @ A[0]
    # The other rows, A.T @ x without the diagonal that is in A @ x, and sine times cosine.
    assert [nodes[i].op for i in own].count("mul") == (N - 1) * N + (N**2 - N) + N
    assert kernel.operations == len([op for op in always if op not in ("input", "const")])


@pytest.mark.slow
@pytest.mark.parametrize("form", LAST_LARGE)
def test_data_used_only_in_a_rare_case_stays_in_memory(form: str) -> None:
    fn = last_large(form)
    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.ones(N), jnp.ones((N, N))))
    count = len(next(iter(kernel.live.loops.values())).in_memory)
    whole = 3 * N + 1
    assert count == whole if LAST_LARGE[form] else count < whole
    assert_agrees(fn, size=67)
    assert_agrees(lambda x, A: jax.jacfwd(lambda y: fn(y, A)[0][:2])(x))
    assert_agrees(lambda x, A: jax.grad(lambda y: fn(y, A)[0][1].sum())(x))


def test_a_small_branch_is_a_select() -> None:
    def fn(x: Any) -> Any:
        return lax.cond(x[0] > 0, lambda: -x, lambda: x)

    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.ones(N)))
    assert not kernel.live.branches


@pytest.mark.parametrize("places", [[], [0], [70], [3, 40], list(range(129))])
def test_a_rare_case_holds_in_some_lanes_of_some_blocks(places: list[int]) -> None:
    x, A = batch(0, 129)
    x = x.at[:, 0].set(-1.0).at[jnp.array(places, int), 0].set(1.0)
    fn = FUNCTIONS["rare case"]
    mine, plain = vectorize(fn)(x, A), jax.vmap(fn)(x, A)
    np.testing.assert_allclose(mine, plain, rtol=1e-12, atol=1e-12)
    assert np.flatnonzero((mine != x).any(1)).tolist() == places


@pytest.mark.parametrize("name", ["log", "log2", "log10", "sqrt", "reciprocal"])
def test_subnormal_numbers_are_zero(name: str) -> None:
    """Subnormal numbers act as zeros, as in XLA on a CPU: the logarithm is infinite."""
    tiny = np.finfo(float).tiny
    x = jnp.array([5e-324, tiny / 16, tiny, 2 * tiny, 0.0, -tiny / 2, 1.0])
    fn = getattr(jnp, name)
    mine, plain = jax.jit(vectorize(fn))(x), jax.jit(jax.vmap(fn))(x)
    np.testing.assert_allclose(mine, plain, rtol=1e-15)
    assert np.isinf(plain[1]) == (name != "sqrt")


def test_a_loop_knows_the_constants_of_a_function_that_was_compiled_before() -> None:
    """Constant zeros are folded, and other constants of the same shape give other code."""

    def growing(table: np.ndarray) -> Function:
        @jax.jit  # makes arguments of its constants
        def fn(x: Any, A: Any) -> Any:
            return lax.fori_loop(0, 20, lambda _, y: y + 0.01 * (jnp.asarray(table) @ y), x)

        return fn

    full, diagonal = np.arange(1.0, 17.0).reshape(N, N), np.eye(N)
    kept = [explain(growing(table), *batch(0, 5)).parts[0].operations for table in (full, diagonal)]
    assert kept[1] < kept[0] / 3
    for table in (full, diagonal, 2 * full):
        assert_agrees(growing(table))


def test_a_function_that_a_program_still_uses_is_not_read_again() -> None:
    first, second, other = (
        function_kernel(jax.make_jaxpr(fn)(1.0)).reading
        for fn in (lambda x: x * jnp.sin(x), lambda y: y * jnp.sin(y), jnp.cos)
    )
    assert first is second
    assert first is not other
