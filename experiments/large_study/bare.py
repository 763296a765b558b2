"""The kernel alone: `vmap(simulate)` of a block of a study, from given initial states.

All results of `simulate` are computed, as in the study: saved states, energies, and the audit of
status, residuals, rank and error. A second program computes only the initial states, and checks
that they are on their constraints.

Usage: python -m experiments.large_study.bare CONFIG RESULT
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmech as jm
from jaxmech.config.toml import read
from jaxmech.ensemble import Study
from jaxmech.ensemble.blocks.kernel import BlockProgram, compile_kernel
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.members.trajectory import merged

SECONDS = 3.0  # of each of the rounds, of which the fastest one counts
ROUNDS = 3


def kernel_of(config: Path) -> BlockProgram:
    """Compile the program of a study's blocks."""
    found = planned(read(config, Study), Path("no folder"), config.parent)
    study = replace(found.study, **found.functions)
    return compile_kernel(study, found.subject, found.sampler)


def measured(kernel: BlockProgram) -> dict[str, float]:
    """Count the steps of the kernel alone, and the CPU seconds of the initial states of a block."""
    trajectory, study = kernel.member, kernel.member.study
    inputs = jax.device_put(kernel.inputs(0))

    def start(own: Any) -> Any:
        given = merged(inputs.shared, own)
        return *trajectory.start(given, not trajectory.may_skip_assembly), trajectory.params(given)

    @jax.jit
    def starts(varying: Any) -> Any:
        return jax.vmap(start, axis_size=kernel.block)(varying)

    @jax.jit
    @jax.vmap
    def bare(q: Any, v: Any, params: Any) -> Any:
        return jm.simulate(
            trajectory.system, q, v, trajectory.ts, params,
            method=study.method, steps=study.steps, projection=study.projection,
            formulation=study.formulation,
        )  # fmt: skip

    q, v, met, params = starts(inputs.varying)
    arrays = kernel.finished(inputs, kernel.run(inputs)).arrays
    found = bare(q, v, params)
    if not bool(met.all()) or not np.all(np.asarray(found.status) == 0):
        raise AssertionError("some trajectories of the first block failed")
    if "q" in arrays and not np.array_equal(arrays["q"], found.q):
        raise AssertionError("the study and the kernel alone do not compute the same states")
    cpu, wall = _seconds(lambda: bare(q, v, params))
    steps = kernel.block * (study.times.saves - 1) * study.steps.per_save  # type: ignore[union-attr]
    return {
        "block": kernel.block,
        "steps_per_cpu_second": steps / cpu,
        "steps_per_second": steps / wall,
        "initial_states_cpu_seconds": _seconds(lambda: starts(inputs.varying))[0],
    }


def _seconds(fn: Callable[[], Any]) -> tuple[float, float]:
    """Measure CPU and wall seconds of a call in the fastest round."""
    jax.block_until_ready(fn())
    best = float("inf"), float("inf")
    for _ in range(ROUNDS):
        calls, cpu, wall = 0, time.process_time(), time.perf_counter()
        while calls == 0 or time.perf_counter() - wall < SECONDS:
            jax.block_until_ready(fn())
            calls += 1
        own = (time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls
        best = min(best, own)
    return best


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    Path(sys.argv[2]).write_text(json.dumps(measured(kernel_of(Path(sys.argv[1])))) + "\n")
