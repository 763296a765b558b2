"""GPU kernels compiled for the CPU give the results of native code."""

import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxmech as jm
from experiments.cases import GENTLE, made, states
from experiments.cuda import ptxas
from experiments.cuda.cases import case
from experiments.cuda.host import on_host
from experiments.cuda.kernels import Called, running
from jaxmech.compiler import vectorize
from jaxmech.compiler.backends.cuda import GpuKernel, module
from jaxmech.compiler.frontend.build import function_kernel
from jaxmech.models import CATALOGUE
from tests.compiler.test_vectorize import FUNCTIONS, batch
from tests.compiler.test_while import LOOPS, starts
from tests.unilateral.systems import BALL, SLED

SOME = (  # one for each kind of text
    "logic", "transcendental", "other functions", "reductions", "choices", "largest", "integers",
    "constants", "rare cases of one kind", "rare case in a loop", "rare case that has a loop",
    "long loop", "saving", "nested", "gradient of a loop", "while",
    "while in a loop", "while in a rare case",
)  # fmt: skip
ROLLOUTS = (
    ("bead_on_rod", "projection"), ("rolling_wheel", "gradient"), ("rolling_wheel", "solution"),
    ("double_pendulum", "sensitivities"),
)  # fmt: skip
TOLERANCES = {"gradient": 1e-11}  # 1e-13 elsewhere
SINGLE = 1e-5


def called(fn: Any, *args: Any) -> Called:
    """The kernel of a function, all arguments of which differ in the batch."""
    kernel = function_kernel(jax.make_jaxpr(fn)(*(x[0] for x in args)))
    return Called(kernel, frozenset(range(len(args))))


def host_run(fn: Any, *args: Any, threads: int = 3, blocks: int = 2) -> list[np.ndarray]:
    return on_host(called(fn, *args), threads, blocks)([np.asarray(x) for x in args], len(args[0]))


def assert_close(ours: Any, expected: Any, tolerance: float) -> None:
    """Relative to the largest number of each result; NaN in the same places."""
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        scale = np.nanmax(np.abs(y), initial=1.0) if y.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * scale)


def with_events(sol: jm.Solution) -> Any:
    """A solution with the records of its events in place of the log, whose last rows are empty."""
    return replace(sol, events=None), {name: sol.events[name] for name in sol.events}


@pytest.mark.parametrize("name", SOME)
def test_functions(name: str) -> None:
    fn, args = FUNCTIONS[name], batch(0, 5)
    assert_close(host_run(fn, *args), vectorize(fn)(*args), 1e-14)


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_end_by_a_condition(name: str) -> None:
    """Each thread leaves them by itself, after its own number of iterations, or none."""
    for x in (starts(7), np.float32(starts(7))):
        found, expected = host_run(LOOPS[name], x), vectorize(LOOPS[name])(x)
        assert_close(found, expected, 1e-14 if x.dtype == np.float64 else SINGLE)


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("grid", [(1, 1), (3, 2), (4, 4)])
def test_any_grid_computes_any_batch(size: int, grid: tuple[int, int]) -> None:
    x = jnp.arange(7.0)
    one = called(lambda x: 2 * x, x)
    (found,) = on_host(one, *grid)([np.asarray(x[:size])], size)
    np.testing.assert_array_equal(found, 2 * x[:size])


def test_shared_arguments_have_no_axis() -> None:
    x, A = batch(1, 5)
    kernel = function_kernel(jax.make_jaxpr(lambda x, A: A @ x)(x[0], A[0]))
    run = on_host(Called(kernel, frozenset([0])))
    np.testing.assert_allclose(run([np.asarray(x), np.asarray(A[0])], 5)[0], x @ A[0].T, rtol=1e-14)


@pytest.mark.slow
def test_adaptive_steps() -> None:
    """Every trajectory has its own steps, in a loop that ends by a condition."""
    model, (q, v) = made("pendulum"), states("pendulum", np.linspace(0.0, 1.0, 5))
    policies = {"method": jm.DormandPrince5(), "steps": jm.Adaptive(rtol=1e-7, atol=1e-9)}

    def run(q: Any, v: Any) -> jm.Solution:
        return jm.simulate(model.system, q, v, jnp.linspace(0.0, 1.0, 3), model.params, **policies)

    with running(on_host) as found:
        ours = jax.block_until_ready(jax.jit(jax.vmap(run))(q, v))
    assert found
    assert_close(ours, jax.jit(jax.vmap(run))(q, v), 1e-13)
    if ptxas.ptxas() is not None:
        for one in found:
            assert ptxas.assembled(GpuKernel(*one).ptx, "sm_90").registers <= 255


@pytest.mark.slow
def test_gaps_that_close_and_open() -> None:
    """Every trajectory has impacts of its own."""
    start, e = jnp.linspace(0.5, 1.5, 5)[:, None], {"e": jnp.linspace(0.1, 0.9, 5)}

    def run(q: Any, p: Any) -> jm.Solution:
        ts, steps = jnp.linspace(0.0, 1.5, 4), jm.FixedSteps(per_save=10)
        return jm.simulate(BALL, q, 0 * q, ts, p, steps=steps)

    with running(on_host) as found:
        ours = jax.block_until_ready(jax.jit(jax.vmap(run))(start, e))
    assert found
    assert len(set(np.asarray(ours.events["floor closes"].count))) == 5
    expected = jax.jit(jax.vmap(run))(start, e)
    assert_close(with_events(ours), with_events(expected), 1e-13)


@pytest.mark.slow
def test_friction_that_slides_and_sticks() -> None:
    def run(p: Any) -> jm.Solution:
        ts, steps = jnp.linspace(0.0, 1.0, 4), jm.FixedSteps(per_save=4)
        return jm.simulate(SLED, [0.0], [2.0], ts, p, steps=steps)

    mu = {"mu": jnp.linspace(0.15, 0.5, 5)}
    with running(on_host) as found:
        ours = jax.block_until_ready(jax.jit(jax.vmap(run))(mu))
    assert found
    assert set(np.asarray(ours.events["rub stops"].count)) == {0, 1}
    expected = jax.jit(jax.vmap(run))(mu)
    assert_close(with_events(ours), with_events(expected), 1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), ROLLOUTS)
def test_rollouts(name: str, way: str) -> None:
    """Models of each kind; the forward run that a gradient begins with is its own kernel."""
    assert_rollout_agrees(name, way, 7)


@pytest.mark.slow
def test_single_precision() -> None:
    assert_rollout_agrees("rolling_wheel", "projection", 9, np.float32)


def assert_rollout_agrees(name: str, way: str, size: int, dtype: Any = np.float64) -> None:
    one = case(name, way, size, 100, dtype)
    with running(on_host) as found:
        ours = jax.block_until_ready(jax.jit(one.batched)(*one.args))
    assert found
    tolerance = SINGLE if dtype == np.float32 else TOLERANCES.get(way, 1e-13)
    assert_close(ours, jax.jit(one.batched)(*one.args), tolerance)


def test_every_model_has_a_gentle_start() -> None:
    assert GENTLE.keys() >= CATALOGUE.keys()


@pytest.mark.parametrize("largest", [1.0, 1e4, 9.9e4, 1e6, 1e15, 3e38])
def test_sine_and_cosine_in_single_precision(largest: float) -> None:
    """Units in the last place; where a sine is near zero, x is next to a multiple of pi."""
    draw = np.random.default_rng(4)
    x = np.float32([*draw.uniform(-largest, largest, 300), 0.0, -0.0, largest])
    x = np.concatenate([x, np.float32(np.round(x.astype(float) / (np.pi / 2)) * (np.pi / 2))])
    found = np.stack(host_run(lambda x: (jnp.sin(x), jnp.cos(x)), jnp.asarray(x)), 1)
    with mpmath.workdps(80):
        exact = [[float(f(mpmath.mpf(float(a)))) for f in (mpmath.sin, mpmath.cos)] for a in x]
    np.testing.assert_allclose(found, exact, rtol=1.5e-7, atol=0)


def test_infinite_angles_have_no_sine() -> None:
    for part in host_run(lambda x: (jnp.sin(x), jnp.tan(x)), jnp.float32([jnp.inf, jnp.nan])):
        assert np.isnan(part).all()


def test_ptx() -> None:
    x = jnp.ones((3, 4))
    program = GpuKernel(*called(lambda x: (x[::-1] * x, jnp.zeros((0, 2))), x))
    assert f".visible .entry {program.facts.name}(" in program.ptx
    assert len(re.findall(r"_param_\d+,?\n", program.ptx)) == 3  # the size, x, and one result
    assert program.facts.results == (0,)
    assert ".target sm_75" in program.ptx
    assert ".version 6.3" in program.ptx
    assert program.ptx.count("ld.global.nc.v2") == program.ptx.count("st.global.v2") == 2
    assert ".maxn" not in program.ptx
    assert ".local" not in program.ptx


def test_targets() -> None:
    one = called(lambda x: x + 1, jnp.ones(3))
    assert ".target sm_90" in GpuKernel(*one, target="sm_90").ptx


def test_equal_kernels_have_equal_names_and_others_do_not() -> None:
    x = jnp.ones(3)
    first, again, other = (module(*called(fn, x))[0] for fn in (jnp.sqrt, jnp.sqrt, jnp.abs))
    assert first == again != other
