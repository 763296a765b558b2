"""In native code too, zero times NaN is NaN, or another result is NaN."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jax import lax

import jaxmech as jm
from jaxmech import Status
from jaxmech import parts as jp
from jaxmech.compiler import batched_closure, explain, unchecked, vectorize
from jaxmech.compiler.frontend import build, from_jaxpr
from jaxmech.compiler.frontend.build import function_kernel
from jaxmech.compiler.ir.graph import Graph
from jaxmech.compiler.optimize.fold_zeros import unsafe_origins
from jaxmech.utils.jit_cache import jit_of

NAN, INF = np.nan, np.inf
Function = Callable[[Any], Any]


def much(x: Any) -> Any:
    """A computation that is large enough for a branch."""
    for _ in range(3):
        x = jnp.sin(x) + jnp.cos(2.0 * x) * x
    return x


def carried(x: Any, zero: float) -> Any:
    """A loop that carries a root along and uses it times zero."""

    def turn(_: Any, carry: Any) -> Any:
        y, root = carry
        return jnp.sin(y) + zero * root, jnp.sqrt(x[0])

    return lax.fori_loop(0, 12, turn, (x[1], x[0]))[0]


def saved(x: Any) -> Any:
    """A loop that saves, and one that reads it and multiplies it by zero."""
    _, roots = lax.scan(lambda y, _: (y - 0.1, jnp.sqrt(y)), x[0], None, length=12)
    return lax.scan(lambda y, root: (jnp.sin(y) + 0.0 * root, None), x[1], roots)[0]


def stopping(x: Any) -> Any:
    """A loop that stops before it overflows, and counts its iterations."""

    def turn(_: Any, carry: Any) -> Any:
        y, good, count = carry
        root = jnp.sqrt(y)
        following = y - 0.25 + 0.0 * root
        good &= jnp.isfinite(following + root)
        return jnp.where(good, following, y), good, count + good

    return lax.fori_loop(0, 12, turn, (x[0], jnp.asarray(True), jnp.zeros((), jnp.int32)))


MASK = np.array([1.0, 0.0])
# In x = (2, 1) everything is finite; two of the others contain non-finite values.
FUNCTIONS: dict[str, Function] = {
    "root": lambda x: 0.0 * jnp.sqrt(x[0]) + x[1],
    "zero over a root": lambda x: 0.0 / jnp.sqrt(x[0]) + x[1],
    "power": lambda x: 0.0 * x[0] ** 1.5 + x[1],
    "square of a root": lambda x: (0.0 * jnp.sqrt(x[0])) ** 2 + x[1],
    "of a whole number": lambda x: jnp.where(0.0 * jnp.sqrt(x[0]) > -1.0, 1, 2),
    "compared": lambda x: jnp.where(0.0 * jnp.sqrt(x[0]) + x[1] > 0.0, 3.0, 4.0),
    "mask": lambda x: MASK * jnp.sqrt(x),
    "mask of a sum": lambda x: (MASK * jnp.sqrt(x)).sum(),
    "known otherwise": lambda x: jnp.stack([0.0 * jnp.sqrt(x[0]), jnp.sqrt(x[0])]),
    "a divisor that shows": lambda x: jnp.stack([0.0 / x[0], x[1] / x[0]]),
    "a divisor that hides": lambda x: 0.0 * jnp.log(x[0]) + 1.0 / jnp.log(x[0]),
    "bounded": lambda x: 0.0 * jnp.log(x[0]) + jnp.tanh(jnp.log(x[0])),
    "chosen": lambda x: jnp.where(x[0] > 0, 0.0 * jnp.log(x[0]), x[1]),
    "chosen inside": lambda x: 0.0 * jnp.where(x[0] > 0, jnp.log(x[0]), x[1]) + x[1],
    "doubly chosen": lambda x: jnp.where(
        x[0] > 0, 0.0 * jnp.log(jnp.where(x[0] > 0, x[0], 1.0)), x[1]
    ),
    "in the other case": lambda x: jnp.where(x[0] > 0, x[1], 0.0 * jnp.sqrt(x[0]) + x[1]),
    "shown in one case": lambda x: jnp.where(x[1] > 0, jnp.sqrt(x[0]), x[1]) + 0.0 * jnp.sqrt(x[0]),
    "shown in either case": lambda x: (
        jnp.where(x[1] > 0, jnp.sqrt(x[0]), 2.0 * jnp.sqrt(x[0])) + 0.0 * jnp.sqrt(x[0])
    ),
    "branch": lambda x: lax.cond(x[1] > 0, lambda: much(x[1]) + 0.0 * jnp.sqrt(x[0]), lambda: x[1]),
    "replaced": lambda x: jnp.where(jnp.isfinite(jnp.sqrt(x[0])), x[1], 1.0) + 0.0 * jnp.sqrt(x[0]),
    "if finite": lambda x: (
        0.0 * jnp.where(jnp.isfinite(jnp.sqrt(x[0])), jnp.sqrt(x[0]), x[1]) + x[1]
    ),
    "unless finite": lambda x: (
        0.0 * jnp.where(jnp.isfinite(jnp.sqrt(x[0])), x[1], jnp.sqrt(x[0])) + x[1]
    ),
    "constant": lambda x: 0.0 * jnp.where(x[0] > 0, x[0], NAN) + x[1],
    "carried": lambda x: carried(x, 0.0),
    "computed before": lambda x: lax.fori_loop(
        0, 12, lambda _, y: jnp.sin(y) + 0.0 * jnp.sqrt(x[0]), x[1]
    ),
    "tested in a loop": lambda x: (
        x[0]
        + lax.fori_loop(
            0, 12, lambda _, y: jnp.sin(y) + 0.0 / jnp.where(x[0] > jnp.abs(y), x[0], 1.0), x[1]
        )
    ),
    "saved": saved,
    "stopping": stopping,
    "forward": lambda x: jax.jvp(lambda y: jnp.sin(y) * jnp.sqrt(x[0]), (x[1],), (0.0 * x[1],)),
    "backward": jax.grad(lambda x: (MASK * jnp.sqrt(x) + x).sum()),
}
POINTS = np.array([
    [2.0, 1.0], [-2.0, 1.0], [-2.0, -1.0], [0.0, 1.0], [-0.0, -1.0], [NAN, 1.0], [2.0, NAN],
    [1.0, 2.0], [INF, 1.0], [1.0, -INF],
])  # fmt: skip


def is_finite(outs: Any, size: int) -> np.ndarray:
    """Whether all results of each trajectory are finite."""
    whole = [np.isfinite(np.asarray(x)).reshape(size, -1) for x in jax.tree.leaves(outs)]
    return np.concatenate(whole, axis=1).all(axis=1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_non_finite_numbers_agree_with_vmap(name: str) -> None:
    fn, x = FUNCTIONS[name], jnp.asarray(POINTS)
    mine, plain = jax.jit(vectorize(fn))(x), jax.jit(jax.vmap(fn))(x)
    finite = is_finite(plain, len(x))
    np.testing.assert_array_equal(is_finite(mine, len(x)), finite)
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(np.asarray(a)[finite], np.asarray(b)[finite], rtol=1e-14)
    assert finite[0]
    assert not explain(fn, x).parts[0].reason


FOLDED: dict[str, Function] = {
    "known otherwise": FUNCTIONS["known otherwise"],
    "shown in either case": FUNCTIONS["shown in either case"],
    "tested in a loop": FUNCTIONS["tested in a loop"],
    "doubly chosen": lambda x: FUNCTIONS["doubly chosen"](x) + x[0],
    "sines": lambda x: jnp.stack([0.0 * jnp.sin(x[0] * x[1]), x[0] + x[1]]),
    "a positive divisor": lambda x: 0.0 / (1.0 + x[0] ** 2) + x[0] * x[1],
    "a length": lambda x: 0.0 * jnp.sqrt(x @ x) + x[0] * x[1],
    "a safe divisor": lambda x: (
        0.0 * jnp.where(x[0] > 1e-9, 1.0 / jnp.where(x[0] > 1e-9, x[0], 1.0), 0.0) + x[0] * x[1]
    ),
    "stopping": stopping,
    "if finite": FUNCTIONS["if finite"],
}


def products_with_zero(fn: Function) -> tuple[int, int]:
    """How many products and quotients with zero are folded and computed."""
    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.ones(2)))
    graphs = [kernel.reader.graph, *(loop.body for loop in kernel.reader.loops)]
    computed = [
        node
        for g in graphs
        for node in g.nodes
        if node.op in ("mul", "div") and any(g.values[i] == 0 for i in node.inputs)
    ]
    return sum(len(g.zeros) for g in graphs), len(computed)


@pytest.mark.parametrize("name", FOLDED)
def test_zeros_that_hide_nothing_are_folded(name: str) -> None:
    folded, computed = products_with_zero(FOLDED[name])
    assert folded > 0
    assert computed == 0


def test_numbers_that_are_replaced_unless_finite_do_not_carry_nan_further() -> None:
    def fn(x: Any) -> Any:
        root = jnp.sqrt(x[0])
        return 0.0 * root + 0.0 * (jnp.where(jnp.isfinite(root), root, x[1]) * x[1]) + x[1]

    assert products_with_zero(fn)[1] == 1  # that with the root itself


# Random programs -----------------------------------------------------------------------------

UNARY = {
    "neg": (jnp.negative, np.negative), "sin": (jnp.sin, np.sin), "sqrt": (jnp.sqrt, np.sqrt),
    "log": (jnp.log, np.log), "tanh": (jnp.tanh, np.tanh), "abs": (jnp.abs, np.abs),
    "one over": (lambda x: 1.0 / x, lambda x: 1.0 / x),
    "zero times": (lambda x: 0.0 * x, lambda x: 0.0 * x),
    "zero over": (lambda x: 0.0 / x, lambda x: 0.0 / x),
}  # fmt: skip
BINARY = {
    "add": (jnp.add, np.add), "sub": (jnp.subtract, np.subtract), "div": (jnp.divide, np.divide),
    "mul": (jnp.multiply, np.multiply), "max": (jnp.maximum, np.maximum),
    "min": (jnp.minimum, np.minimum),
    "if positive": (lambda x, y: jnp.where(x > 0, y, x), lambda x, y: np.where(x > 0, y, x)),
    "root if positive": (
        lambda x, y: jnp.where(x > 0, jnp.sqrt(x), y), lambda x, y: np.where(x > 0, np.sqrt(x), y)
    ),
    "if finite": (
        lambda x, y: jnp.where(jnp.isfinite(x), x, y), lambda x, y: np.where(np.isfinite(x), x, y)
    ),
    "if less": (lambda x, y: jnp.where(x < y, 0.5, x), lambda x, y: np.where(x < y, 0.5, x)),
}  # fmt: skip


# An operation, and how far back its two inputs are; often a product with zero.
ZERO = st.sampled_from(["zero times", "zero over"])
LINE = st.tuples(
    st.one_of(st.sampled_from([*UNARY, *BINARY]), ZERO), st.integers(1, 5), st.integers(1, 5)
)
some_lines = given(st.lists(LINE, min_size=8, max_size=12))


def run(lines: list[tuple[str, int, int]], x: Any, which: int) -> Any:
    """The last two numbers of a program, and one in between; by JAX (0) or by numpy (1)."""
    numbers = [x[0], x[1], x[2]]
    for name, *back in lines:
        inputs = [numbers[-min(k, len(numbers))] for k in back]
        number = UNARY[name][which](inputs[0]) if name in UNARY else BINARY[name][which](*inputs)
        numbers.append(unsigned_zero(number) if which else number)
    return numbers[-1], numbers[-2], numbers[len(numbers) // 2]


def unsigned_zero(y: Any) -> Any:
    """Remove the sign of zeros, which folding does not preserve."""
    return np.where(y == 0, np.zeros_like(y), y)


def evaluated(g: Graph, x: np.ndarray, ids: list[int]) -> list[Any]:
    """The numbers of a graph without loops by numpy."""
    names = {
        "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
        "gt": np.greater, "lt": np.less, "max": np.maximum, "min": np.minimum,
        "is_finite": np.isfinite,
        "select_n": lambda which, no, yes: np.where(which, yes, no),
    }  # fmt: skip
    numbers: list[Any] = []
    for node, value in zip(g.nodes, g.values, strict=True):
        if node.op == "input":
            number = x[node.params]
        elif value is not None:
            number = value
        else:
            fn = names.get(node.op) or getattr(np, node.op)
            number = unsigned_zero(fn(*(numbers[i] for i in node.inputs)))
        numbers.append(number)
    return [numbers[i] for i in ids]


def points(seed: int, count: int) -> np.ndarray:
    """Arguments of all sizes and signs, zeros and NaN among them, (3, count)."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(3, count))
    return np.where(draw.random(x.shape) < 0.15, draw.choice([0.0, NAN, 1.0], x.shape), x)


@some_lines
@settings(max_examples=150)
def test_random_programs(lines: list[tuple[str, int, int]]) -> None:
    """Results are non-finite exactly where plain arithmetic in numpy is."""
    x = points(0, 64)
    kernel = function_kernel(jax.make_jaxpr(lambda x: run(lines, x, 0))(jnp.ones(3)))
    with np.errstate(all="ignore"):
        expected = run(lines, x, 1)
        found = evaluated(kernel.reader.graph, x, [int(i) for i in kernel.outs])
    finite, lanes = (
        np.all([np.broadcast_to(np.isfinite(y), 64) for y in ys], axis=0)
        for ys in (expected, found)
    )
    np.testing.assert_array_equal(lanes, finite)
    for a, b in zip(found, expected, strict=True):
        a, b = (np.broadcast_to(y, 64)[finite] for y in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@some_lines
@settings(max_examples=5, phases=[Phase.generate])
def test_random_loops(lines: list[tuple[str, int, int]]) -> None:
    def fn(x: Any) -> Any:
        def turn(_: Any, carry: Any) -> Any:
            a, b, c = run(lines, (*carry[:2], x[2]), 0)
            return jnp.tanh(a), 0.5 * carry[1] + jnp.tanh(b), jnp.tanh(c)

        return lax.fori_loop(0, 9, turn, (x[0], x[1], x[2]))

    x = jnp.asarray(points(1, 256).T)
    mine, plain = jax.jit(vectorize(fn))(x), jax.jit(jax.vmap(fn))(x)
    np.testing.assert_array_equal(is_finite(mine, 256), is_finite(plain, 256))


# Trajectories --------------------------------------------------------------------------------

NEVER = np.zeros(2)
FORCES: dict[str, tuple[Any, Status]] = {  # on a ball that falls below x = 0
    "masked root": (lambda q, v, t, p: NEVER * jnp.sqrt(q[0]), Status.NONFINITE),
    "zero over a root": (lambda q, v, t, p: NEVER / jnp.sqrt(q[0]), Status.NONFINITE),
    "parameter": (lambda q, v, t, p: NEVER * p["k"] * v, Status.NONFINITE),
    "guarded": (lambda q, v, t, p: jnp.where(q > 0, NEVER * jnp.sqrt(q), -0.1 * v), Status.OK),
}


def falling(force: Any, rods: Any = ()) -> jm.System:
    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v - 9.81 * q[0]

    return jm.System(lagrangian, rods, force=force, coordinates=("x", "y"))


def end(system: jm.System, x: Any, k: Any) -> tuple[Any, Any, Any]:
    ts, q0, v0 = jnp.linspace(0.0, 1.0, 3), jnp.stack([x, -jnp.sqrt(1 - x**2)]), jnp.zeros(2)
    sol = jm.simulate(system, q0, v0, ts, {"k": k}, steps=jm.FixedSteps(20), projection=None)
    return sol.status, sol.t_failed, sol.q


def assert_one_as_in_a_batch(system: jm.System, x: Any, k: Any, expected: list[Status]) -> None:
    status, t_failed, q = jax.jit(jax.vmap(lambda x, k: end(system, x, k)))(x, k)
    np.testing.assert_array_equal(status, expected)
    one, t_one, q_one = jax.jit(lambda x, k: end(system, x, k))(x[1], k[1])
    assert one == expected[1]
    np.testing.assert_allclose(t_failed[1], t_one, rtol=1e-12)
    np.testing.assert_allclose(q[1], q_one, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORCES)
def test_a_masked_force_ends_in_the_same_status(name: str) -> None:
    force, expected = FORCES[name]
    is_given = name == "parameter"
    k = jnp.array([0.0, NAN if is_given else 1.0])
    first = Status.OK if is_given else expected
    assert_one_as_in_a_batch(falling(force), jnp.array([0.5, 0.6]), k, [first, expected])


def test_a_mask_in_a_constraint() -> None:
    """A pendulum whose root has no value on the left."""
    rod = jm.Holonomic(
        lambda q, t, p: (q @ q - 1.0) / 2 + (NEVER * jnp.sqrt(p["k"] + q[0])).sum(), name="rod"
    )
    system = falling(lambda q, v, t, p: jnp.array([9.81, -9.81]) + 0.0 * v, [rod])
    k = jnp.array([9.0, 0.3])
    assert_one_as_in_a_batch(system, jnp.array([0.5, 0.6]), k, [Status.OK, Status.NONFINITE])


@pytest.mark.parametrize("name", ["masked root", "masked corner"])
def test_a_gradient_with_an_infinite_slope(name: str) -> None:
    """Where the derivative of the root or of arccos is infinite, zero times that is NaN."""
    functions = {"masked root": jnp.sqrt, "masked corner": lambda k: jnp.arccos(1.0 - k)}
    system = falling(lambda q, v, t, p: NEVER * functions[name](p["k"]))
    slope = jax.grad(lambda k: end(system, jnp.asarray(0.6), k)[2][-1, 0])
    k = jnp.array([0.0, 1.0])
    np.testing.assert_array_equal(np.isfinite(jax.jit(jax.vmap(slope))(k)), [False, True])


@pytest.mark.parametrize("steps", [jm.FixedSteps(5), jm.Adaptive()], ids=["fixed", "adaptive"])
def test_derivatives_cost_a_few_motions(steps: Any) -> None:
    """The state of an arm is finite where its motion is, so products with zero are folded.

    Where they were not, a tangent took 36 and a gradient 46 times the operations of a fixed step:
    nothing shows a NaN of the angle about the vertical axis, on which no weight depends.
    """
    upper, fore = (
        jp.spatial_body(name, mass="m", inertia=(0.02, 0.02, 0.003), center=(0, 0, 0.2))
        for name in ("upper", "fore")
    )
    base = jp.revolute("base", jp.ground, (0, 0, 0), upper, (0, 0, 0), axis=(0, 0, 1))
    elbow = jp.revolute("elbow", upper, (0, 0, 0.4), fore, (0, 0, 0), axis=(0, 1, 0))
    arm = jp.Mechanism([upper, fore], [base, elbow], [jp.gravity(9.81)], params={"m": 1.5})
    q, v = arm.guess({"base": jp.Start(0.3, velocity=0.5), "elbow": jp.Start(0.4, velocity=0.5)})
    ts = jnp.linspace(0.0, 0.1, 11)

    def tip(m: Any) -> Any:
        return jm.simulate(arm.system, q, v, ts, {"m": m}, steps=steps).q[-1].sum()

    def operations(fn: Any) -> int:
        return explain(fn, jnp.array([1.0, 2.0])).parts[-1].operations

    motion = operations(tip)
    assert operations(lambda m: jax.jvp(tip, (m,), (jnp.ones_like(m),))[1]) <= 3 * motion
    assert operations(jax.grad(tip)) <= 5 * motion


def test_a_motion_that_ends_has_a_nan_derivative() -> None:
    """The second ball falls below zero, where its force has no value."""
    system = falling(lambda q, v, t, p: p["k"] * jnp.sqrt(q[0]) * jnp.array([1.0, 0.0]))
    slope = jax.grad(lambda k: end(system, jnp.asarray(0.6), k)[2][-1, 0])
    np.testing.assert_array_equal(
        np.isfinite(jax.vmap(slope)(jnp.array([30.0, 1.0]))), [True, False]
    )


def test_an_origin_is_known_again_after_products_with_zero_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = []

    def counted(*args: Any) -> Any:
        searches.append(unsafe_origins(*args))
        return searches[-1]

    def chain(x: Any) -> Any:
        for slope in (jnp.log, jnp.sqrt, lax.rsqrt, jnp.arccos):
            x = jnp.where(x + 0.0 * slope(x) > 0.1, x - 0.3, 2.0 * x)
        return x

    monkeypatch.setattr(build, "unsafe_origins", counted)
    x = jnp.array([0.5, -1.0, 0.0, 2.0])
    np.testing.assert_array_equal(vectorize(chain)(x), jax.vmap(chain)(x))
    assert [len(origins) for origins in searches] == [4, 0]


def test_unchecked_programs_may_hide_a_nan() -> None:
    """Zero times infinity is folded in a program whose results nobody sees, and only there."""

    def hidden(x: Any) -> Any:
        return x + 0 * (1 / x)

    zero = jnp.zeros(1)
    with unchecked():
        assert vectorize(hidden)(zero) == 0.0
    assert jnp.isnan(vectorize(hidden)(zero)).all()


@pytest.mark.parametrize("is_finite", [False, True])
def test_products_of_finite_arguments_with_zero_are_folded(is_finite: bool) -> None:
    """Only a root, not an argument itself, can then make 0 times a number NaN."""

    @jit_of(is_frame=True, is_finite=is_finite)
    def sums(x: Any) -> Any:
        at = batched_closure(lambda x: jnp.stack([0.0 * jnp.sin(x[0]) + x[1], x[1]]), x)
        at_root = batched_closure(lambda x: 0.0 * jnp.sqrt(x[0]) + x[1], x)
        known.append(function_kernel(jax.make_jaxpr(lambda x: 0.0 * jnp.sin(x[0]) + x[1])(x)))
        return at(x), at_root(x)

    known: list[Any] = []
    first, root = sums(jnp.array([2.0, 3.0]))
    np.testing.assert_array_equal(first, [3.0, 3.0])
    assert root == 3.0
    assert known[0].operations == (0 if is_finite else 3)
    assert np.isnan(sums(jnp.array([-2.0, 3.0]))[1])
    assert np.isnan(sums(jnp.array([np.nan, 3.0]))[0][0])


def test_a_loop_that_turns_out_large_leaves_nothing_in_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Products with zero of its first, unrolled iteration would count as unsafe."""
    monkeypatch.setattr(from_jaxpr, "LARGEST_UNROLLED", 100)

    def fn(x: Any) -> Any:
        def turn(y: Any, _: Any) -> Any:
            for _ in range(30):
                y = jnp.sin(y) + 0.0 * jnp.sqrt(1.0 + y[0] ** 2)
            return y, None

        return lax.scan(turn, x, None, length=4)[0]

    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.ones(2)))
    assert len(kernel.reader.loops) == 1
    assert len(kernel.reader.graph.nodes) <= 8
    x = jnp.array([[0.3, 0.4], [1.0, 2.0]])
    np.testing.assert_allclose(vectorize(fn)(x), jax.vmap(fn)(x), rtol=1e-14)  # without a warning
