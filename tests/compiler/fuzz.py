"""Random systems, computed as native code and by plain `jax.vmap`: all results must agree.

    JAX_DISABLE_MOST_OPTIMIZATIONS=1 python -m tests.compiler.fuzz --first 0 --count 1000

A system is drawn from its seed: Lagrangian, force and constraint are random functions of the
operations in `fuzz_operations`. Compared are the values, tangents, gradients and Hessians of these
functions, and for every `MOVING`-th system a motion with its status and its gradient, in float32 or
float64, in batches of 1, 3 or 17.
"""

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech.compiler import NativeCodeWarning, explain, off, vectorize
from tests.compiler.fuzz_operations import (
    ANY,
    INTEGERS,
    KINKED,
    OTHERS,
    SMOOTH,
    TRUTHS,
    Draw,
    N,
    Pool,
    scaled_cotangent,
)

MOVING = 4
SIZES = (1, 3, 17)
CHOICES = 8  # random numbers for each operation
TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 2e-3}

Step = tuple[str, tuple[float, ...]]


@dataclass(frozen=True)
class Plan:
    """A random function: the names of its operations and the numbers for their choices."""

    steps: tuple[Step, ...]

    def values(self, *vectors: Any) -> Any:
        """All floats that are computed from vectors of `N` floats, bounded and weighted."""
        pool = Pool(vectors)
        for name, numbers in self.steps:
            pool.add(ANY[name](pool, Draw(numbers)))
        # The integers and truth values count, too.
        ends = [(i % 5).astype(pool.type) / 5 for i in pool.kinds["i"][-2:]]
        ends += [b.astype(pool.type) / 3 for b in pool.kinds["b"][-2:]]
        floats = pool.kinds["f"][len(vectors) :]
        return sum((jnp.tanh(x) * (k % 3 + 1) / 3 for k, x in enumerate([*floats, *ends])), 0.0)


def drawn_plan(draw: np.random.Generator, tables: list[dict[str, Any]], count: int) -> Plan:
    names = [name for table in tables for name in table]
    return Plan(tuple((str(draw.choice(names)), tuple(draw.random(CHOICES))) for _ in range(count)))


@dataclass(frozen=True)
class Case:
    """A random system with its batch.

    Attributes:
        seed: the number that all of it was drawn from.
        potential, force, rows: the random functions of Lagrangian, force and constraint.
        constraint: "", "holonomic" or "nonholonomic".
        reverse_only: whether the force has a rule for reverse mode only.
        dtype: precision.
        size: number of trajectories.
    """

    seed: int
    potential: Plan
    force: Plan
    rows: Plan
    constraint: str
    reverse_only: bool
    dtype: np.dtype
    size: int


def drawn(seed: int) -> Case:
    """The system of a seed."""
    draw = np.random.default_rng([seed, 20_26])
    tables = [SMOOTH, KINKED, INTEGERS, TRUTHS]
    tables += [OTHERS] if draw.random() < 0.35 else []
    return Case(
        seed,
        drawn_plan(draw, tables[: draw.integers(1, len(tables) + 1)], int(draw.integers(2, 8))),
        drawn_plan(draw, tables, int(draw.integers(4, 14))),
        drawn_plan(draw, [SMOOTH], int(draw.integers(1, 4))),
        str(draw.choice(["", "holonomic", "nonholonomic"])),
        bool(draw.random() < 0.1),
        np.dtype(draw.choice(["float32", "float64"])),
        int(draw.choice(SIZES)),
    )


def functions(case: Case) -> dict[str, Callable[..., Any]]:
    """Lagrangian, force and constraint of one trajectory."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        values = case.potential.values(jnp.sin(t) + q, p["k"])
        mass = 2 + 0.2 * jnp.tanh(values)
        return 0.5 * (mass * v * v).sum() + 0.1 * v[0] * v[1] - values.sum() / 3 - 0.5 * q @ q

    def force(q: Any, v: Any, t: Any, p: Any) -> Any:
        found = case.force.values(q, v + 0.3, p["k"] * jnp.cos(t))
        return scaled_cotangent(found) if case.reverse_only else jnp.tanh(found)

    def slope(q: Any, p: Any) -> Any:
        return p["k"] / 3 + 1 + 0.1 * jnp.tanh(case.rows.values(q, p["k"]))

    return {
        "lagrangian": lagrangian,
        "force": force,
        "holonomic": lambda q, t, p: jnp.stack([slope(q, p) @ q - p["level"]]),
        "nonholonomic": lambda q, v, t, p: jnp.stack([slope(q, p) @ v]),
    }


def start(case: Case) -> tuple[Any, Any, Any]:
    """A batch of consistent states and of parameters."""
    draw = np.random.default_rng([case.seed, 1])
    q, v, k, dq = (jnp.asarray(draw.normal(size=(case.size, N)), case.dtype) for _ in range(4))
    params = {"k": k, "level": jnp.zeros(case.size, case.dtype)}
    if case.constraint == "holonomic":
        holonomic = functions(case)["holonomic"]
        level = jnp.stack(
            [holonomic(x, 0.0, {"k": y, "level": 0.0})[0] for x, y in zip(q, k, strict=True)]
        )
        params["level"] = level.astype(case.dtype)
    return (q, 0 * v if case.constraint else v), (dq, v), params


def local(case: Case) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Values and derivatives of the functions of a system at a state."""
    own = functions(case)
    (q, _), (dq, v), params = start(case)

    def fn(q: Any, v: Any, dq: Any, p: Any) -> dict[str, Any]:
        t = q[0] / 7
        L, found = own["lagrangian"], {}
        found["gradient of L"] = jax.value_and_grad(L, (0, 1))(q, v, t, p)
        found["Hessian of L"] = jax.hessian(L, 1)(q, v, t, p)
        found["mixed Hessian"] = jax.jacfwd(jax.grad(L, 0), 0)(q, v, t, p) @ dq
        found["force"], pull = jax.vjp(lambda q, p: own["force"](q, v, t, p), q, p)
        found["cotangents"] = pull(dq)
        if not case.reverse_only:
            found["tangents"] = jax.jvp(lambda q, v: own["force"](q, v, t, p), (q, v), (dq, dq))[1]
        if case.constraint == "holonomic":
            found["rows"] = jax.jacrev(own["holonomic"])(q, t, p)
        if case.constraint == "nonholonomic":
            found["rows"] = jax.jvp(lambda q, v: own["nonholonomic"](q, v, t, p), (q, v), (dq, v))
        return found

    return fn, (q, v, dq, params)


def motion(case: Case) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A motion of a few steps, with its status, gradient and tangent."""
    own = functions(case)
    kinds = {"holonomic": jm.Holonomic, "nonholonomic": jm.Nonholonomic}
    rows = [kinds[case.constraint](own[case.constraint], name="row")] if case.constraint else []
    system = jm.System(
        own["lagrangian"], force=own["force"], constraints=rows, coordinates=("a", "b", "c")
    )
    (q, v), (dq, _), params = start(case)
    ts = jnp.asarray([0.0, 0.1, 0.2], case.dtype)

    def end(q: Any, v: Any, k: Any, level: Any) -> tuple[Any, dict[str, Any]]:
        p = {"k": k, "level": level}
        sol = jm.simulate(system, q, v, ts, p, steps=jm.FixedSteps(2), throw=False)
        return jnp.sum(jnp.sin(sol.q[-1]) + sol.v[-1] / 2), {
            "q": sol.q,
            "v": sol.v,
            "energy": sol.energy,
            "status": sol.status,
        }

    def fn(q: Any, v: Any, dq: Any, p: Any) -> dict[str, Any]:
        args = q, v, p["k"], p["level"]
        (_, found), gradient = jax.value_and_grad(end, (0, 1, 2), has_aux=True)(*args)
        found["gradient"] = gradient
        if not case.reverse_only:
            found["tangent"] = jax.jvp(lambda q: end(q, *args[1:])[0], (q,), (dq,))[1]
        return found

    return fn, (q, v, dq, params)


def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` by which XLA computes every number once.

    Fused operations compute a number anew for each of its uses, without optimization by other
    roundings. Then no number equals the largest one, by which JAX divides in gradients.
    """
    return jax.jit(fn, compiler_options={"xla_disable_hlo_passes": "fusion"})


def difference(case: Case) -> str:
    """What differs between native code and `vmap`; empty if nothing does."""
    with warnings.catch_warnings():
        # Plain `vmap` is no fault, but an error of the compiler is one.
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", ".*an error of the compiler", NativeCodeWarning)
        fn, args = local(case)
        found = compiled(vectorize(fn))(*args)
        told = _compared("function", found, compiled(jax.vmap(fn))(*args), case.dtype)
        if told or case.seed % MOVING:
            return told
        fn, args = motion(case)
        found = compiled(jax.vmap(fn))(*args)
        with off():
            expected = compiled(jax.vmap(fn))(*args)
        return _compared("motion", found, expected, case.dtype)


def is_native(case: Case) -> bool:
    """Whether the functions of a system are native code as a whole."""
    fn, args = local(case)
    return "plain vmap" not in repr(explain(fn, *args))


def _compared(what: str, found: Any, expected: Any, dtype: np.dtype) -> str:
    if "status" in expected:
        mine, plain = np.asarray(found["status"]), np.asarray(expected["status"])
        if (mine != plain).any():
            return f"{what}: status {mine} instead of {plain}"
    ours, theirs = (jax.tree.leaves_with_path(x) for x in (found, expected))
    for (path, a), (_, b) in zip(ours, theirs, strict=True):
        name = f"{what}{jax.tree_util.keystr(path)}"
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{name}: {a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        a, b = np.asarray(a, float), np.asarray(b, float)
        # A NaN must be seen in the same trajectories, but not in the same numbers.
        rows = [np.isnan(x.reshape(len(x), -1)).any(1) for x in (a, b)]
        if (rows[0] != rows[1]).any():
            return f"{name}: NaN in {np.flatnonzero(rows[0] != rows[1])}"
        a, b = a[~rows[1]], b[~rows[1]]
        scale = 1 + np.abs(b).max(initial=0.0)
        worst = np.abs(a - b).max(initial=0.0) / scale
        if not worst <= TOLERANCE[dtype]:
            return f"{name}: differs by {worst:.1e}"
    return ""


def outcome(case: Case) -> str:
    """As `difference`, with errors as texts."""
    try:
        return difference(case)
    except Exception as error:  # noqa: BLE001 any error is an outcome
        last = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]
        return f"{text} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"


def shrunk(case: Case) -> Case:
    """A case with fewer operations that fails too."""
    for part in ("rows", "potential", "force"):
        k = 0
        while k < len(getattr(case, part).steps):
            steps = getattr(case, part).steps
            smaller = replace(case, **{part: Plan(steps[:k] + steps[k + 1 :])})
            if outcome(smaller):
                case = smaller
            else:
                k += 1
    return case


def main() -> None:
    """Compare systems in a row of seeds, and print those that differ, shortened."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--shrink", action="store_true", help="shorten the systems that differ")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    failed, native, began = 0, 0, time.process_time()
    for done, seed in enumerate(range(given.first, given.first + given.count), start=1):
        case = drawn(seed)
        told = outcome(case)
        native += is_native(case) if seed % 50 == 0 else 0
        if told:
            failed += 1
            print(f"{seed}: {told}", flush=True)
            if given.shrink:
                print(f"    {shrunk(case)}", flush=True)
        if done % 5 == 0:
            jax.clear_caches()
            spent = time.process_time() - began
            print(f"{done} systems, {failed} differ, {spent:.0f} s of CPU", flush=True)
    print(f"{given.count} systems from {given.first}: {failed} differ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
