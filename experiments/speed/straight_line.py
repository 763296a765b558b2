"""Route: the scalar graph of the lanes, written as C and compiled by gcc.

Parameters and times are arguments, and sums keep their order, as in lanes. The program is compiled
with one to four interleaved vectors of trajectories, and the one that is fastest on a few
trajectories is used. The trajectories are distributed over all cores.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

import jaxmech as jm
from experiments.measuring import in_turns
from experiments.speed.c_source import source
from experiments.speed.cases import Case
from experiments.speed.routes import Prepared, States, Unavailable
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.compiler.vectorize import without_unused

# No flag changes a result: errno and floating-point traps are not used, and instructions are
# scheduled before registers are allocated.
_FLAGS = (
    "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fschedule-insns",
    "-fsched-pressure", "-fopenmp", "-shared", "-fPIC",
)  # fmt: skip
_COPIES = (1, 2, 3, 4)  # interleaved vectors: more of them help while the registers hold them
_LONGEST_COPIED = 2000  # lines

Program = Callable[[Sequence[np.ndarray], int], list[np.ndarray]]


def straight_line(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Compile the route; its compile time is that of the program that is used."""
    begun = time.perf_counter()
    kernel, shared = rollout_kernel(case, q0[0], v0[0])
    args = [q0, v0, np.broadcast_to(shared, (len(q0), len(shared)))]
    reading = time.perf_counter() - begun
    program, writing = _fastest(kernel, args)

    def run() -> States:
        q, v = program(args, os.cpu_count() or 1)
        return q, v

    return Prepared(reading + writing, run)


def rollout_kernel(case: Case, q0: np.ndarray, v0: np.ndarray) -> tuple[Kernel, np.ndarray]:
    """Read the graph from an initial state to the final one; also return its third argument.

    That array contains the times and all parameters.
    """
    params = jax.tree.map(jnp.asarray, case.model.params)
    shared, unravel = ravel_pytree((jnp.array([0.0, case.end]), params))

    def run(q: Array, v: Array, shared: Array) -> tuple[Array, Array]:
        ts, params = unravel(shared)
        solution = jm.simulate(
            case.model.system,
            q,
            v,
            ts,
            params,
            steps=jm.FixedSteps(per_save=case.steps),
            projection=None,
            derivative=jm.integrate.ForwardMode(),  # stores no states for a backward pass
        )
        return solution.q[-1], solution.v[-1]

    try:
        # Without the energies of the solution: they are a batch, the graph is of one trajectory.
        closed = without_unused(jax.make_jaxpr(run)(q0, v0, shared))
        return function_kernel(closed), np.asarray(shared)
    except UnsupportedError as error:
        raise Unavailable(f"no scalar graph, because of {error}") from error


def compiled(text: str, outs: Sequence[int]) -> Program:
    """Compile a C source to a function of (size, numbers) arrays and a number of threads.

    `outs` is the number of scalars in each result.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Unavailable("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        written, made = Path(folder, "rollout.c"), Path(folder, "rollout.so")
        written.write_text(text, encoding="utf-8")
        command = [compiler, *_FLAGS, "-o", made, written, "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise Unavailable(f"the C compiler failed: {'; '.join(errors[:1])}")
        library = ctypes.CDLL(str(made))

    def program(args: Sequence[np.ndarray], threads: int) -> list[np.ndarray]:
        size = len(args[0])
        arrays = [np.ascontiguousarray(x, np.float64) for x in args]
        results = [np.empty((size, count)) for count in outs]
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*arrays, *results)]
        library.run(ctypes.c_long(size), ctypes.c_int(threads), *pointers)
        return results

    return program


def _fastest(kernel: Kernel, starts: Sequence[np.ndarray]) -> tuple[Program, float]:
    """The program with the best number of copies on one thread, and its compile seconds."""
    made: list[tuple[Program, float]] = []
    for copies in _COPIES:
        begun = time.perf_counter()
        text = source(kernel, copies)
        if copies == 1 or text.count("\n") < copies * _LONGEST_COPIED:
            program = compiled(text, [x.shape[1] for x in starts[:2]])
            made.append((program, time.perf_counter() - begun))
    few = [x[:96] for x in starts]  # a multiple of 1 to 4 vectors of 8
    runs = {k: partial(program, few, 1) for k, (program, _) in enumerate(made)}
    times = in_turns(runs, clock=time.perf_counter)
    return made[min(times, key=lambda k: times[k].best)]
