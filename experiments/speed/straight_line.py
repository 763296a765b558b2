"""Route: the scalar graph of lanes as C, by the C compiler: what the same operations cost there.

The parameters are constants, so what is multiplied by one or added to zero falls away. The compiler
gets the program with one to four vectors of trajectories interleaved, and what is fastest on a few
trajectories is taken. Groups of trajectories are shared out over all cores.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxmech as jm
from experiments.speed.c_source import source
from experiments.speed.cases import Case
from experiments.speed.routes import Prepared, States, Unavailable
from jaxmech.lanes.kernel import Kernel, function_kernel
from jaxmech.lanes.loops import UnsupportedError

# Nobody looks at errno or at floating-point traps: neither flag changes a result.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp")
# Sums in another order and reciprocals for quotients cost a digit or two and gain up to a quarter;
# instructions are put in order before the registers are given out.
FAST = (
    "-fassociative-math",
    "-fno-signed-zeros",
    "-freciprocal-math",
    "-fschedule-insns",
    "-fsched-pressure",
)
_COPIES = (1, 2, 3, 4)  # vectors interleaved: more of them help as long as the registers hold them
_LONGEST_COPIED = 2000  # lines

Program = Callable[[Sequence[np.ndarray], int], list[np.ndarray]]


def straight_line(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The route; its compile time is that of the program that is taken.

    Raises:
        Unavailable: there is no C compiler, or the rollout has something that has no C.
    """
    begun = time.perf_counter()
    kernel = rollout_kernel(case, q0[0], v0[0])
    reading = time.perf_counter() - begun
    program, writing = _fastest(kernel, [q0, v0])

    def run() -> States:
        q, v = program([q0, v0], os.cpu_count() or 1)
        return q, v

    return Prepared(reading + writing, run)


def rollout_kernel(case: Case, q0: np.ndarray, v0: np.ndarray) -> Kernel:
    """The scalar graph from the start of one trajectory to its final state."""

    def run(q: Array, v: Array) -> tuple[Array, Array]:
        solution = jm.simulate(
            case.model.system,
            q,
            v,
            jnp.array([0.0, case.end]),
            case.model.params,
            method=jm.RK4(substeps=case.steps),
            projection=None,
            derivative=jm.ForwardMode(),  # keeps no states on the way for a backward pass
        )
        return solution.q[-1], solution.v[-1]

    try:
        return function_kernel(jax.make_jaxpr(run)(q0, v0))
    except UnsupportedError as error:
        raise Unavailable(f"no scalar graph, because of {error}") from error


def compiled(text: str, outs: Sequence[int], flags: Sequence[str] = ()) -> Program:
    """A C source as a function of (size, numbers) arrays and a number of threads.

    Args:
        text: as `c_source.source` writes it.
        outs: numbers of each result.
        flags: for the compiler, beside the usual ones.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Unavailable("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        written, made = Path(folder, "rollout.c"), Path(folder, "rollout.so")
        written.write_text(text, encoding="utf-8")
        command = [compiler, *_FLAGS, *flags, "-shared", "-fPIC", "-o", made, written, "-lm"]
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
    """The best number of copies by a trial on one thread, and the seconds that it took to make."""
    made: list[tuple[Program, float]] = []
    for copies in _COPIES:
        begun = time.perf_counter()
        text = source(kernel, copies)
        if copies == 1 or text.count("\n") < copies * _LONGEST_COPIED:
            program = compiled(text, [x.shape[1] for x in starts], FAST)
            made.append((program, time.perf_counter() - begun))
    few = [x[:96] for x in starts]  # as many as whole groups of 1 to 4 vectors of 8 hold
    best = [np.inf] * len(made)
    for _ in range(5):
        for k, (program, _seconds) in enumerate(made):
            begun = time.perf_counter()
            program(few, 1)
            best[k] = min(best[k], time.perf_counter() - begun)
    return made[int(np.argmin(best))]
