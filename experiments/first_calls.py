"""CPU seconds of first calls, each in a process of its own: tracing, compiling and the run itself.

Every call is made twice, with an empty kernel cache and with that of the first process.

Usage: python experiments/first_calls.py [--out FILE] [MODEL ...]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxmech as jm
from jaxmech.config.environment import environment

MODELS = ("double_pendulum", "four_bars", "chain", "andrews")  # `chain` has ten links
BATCH = 64  # trajectories; their number does not change what is compiled


STEPS = jm.RK4(substeps=4)  # of the batch: the default cannot be chosen under `jax.jit`
CALLS = ("simulate", "batch", "acceleration", "assemble", "observe after simulate")


def prepared(name: str, call: str) -> Callable[[], Any]:
    """Make the function of the first call, with all defaults and 101 saves."""
    model = jm.models.make(name)
    system, params = model.system, model.params
    q, v = model.initial()
    ts = jnp.linspace(0.0, 0.01 if name == "andrews" else 1.0, 101)
    if call == "simulate":
        return lambda: jm.simulate(system, q, v, ts, params)
    if call == "batch":
        batch = jnp.tile(q, (BATCH, 1)), jnp.tile(v, (BATCH, 1))
        run = jax.jit(jax.vmap(lambda q, v: jm.simulate(system, q, v, ts, params, method=STEPS)))
        return lambda: run(*batch)
    if call == "acceleration":
        return lambda: jm.acceleration(system, q, v, 0.0, params)
    if call == "assemble":
        return lambda: jm.assemble(system, q, v, params=params)
    solution = jax.block_until_ready(jm.simulate(system, q, v, ts, params))
    return lambda: jm.observe(system, solution, params)


def measured(name: str, call: str) -> float:
    """Measure the CPU seconds of a call in this process."""
    run = prepared(name, call)
    began = time.process_time()
    jax.block_until_ready(run())
    return time.process_time() - began


def in_a_process(name: str, call: str, cache: str) -> float:
    """Measure the CPU seconds of a call in a new process with a given kernel cache."""
    command = [sys.executable, __file__, "--one", call, name]
    done = subprocess.run(
        command,
        env=os.environ | {"JAXMECH_KERNEL_CACHE": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds of first calls.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--one", metavar="CALL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measured(options.models[0], options.one))
        return
    names = options.models or MODELS
    rows = {}
    print(f"{'CPU seconds':40s} empty cache   found on disk")
    for name in names:
        for call in CALLS:
            with tempfile.TemporaryDirectory() as cache:
                pair = [in_a_process(name, call, cache) for _ in range(2)]
            rows[f"{name} {call}"] = [round(x, 2) for x in pair]
            print(f"{name:16s} {call:22s} {pair[0]:5.2f}         {pair[1]:5.2f}", flush=True)
    if options.out:
        report = {"CPU seconds, empty cache and found on disk": rows, "environment": environment()}
        options.out.write_text(json.dumps(report, indent=2, default=str) + "\n")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
