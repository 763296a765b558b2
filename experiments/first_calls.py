"""CPU seconds of first calls: tracing, compiling and the run itself.

    python -m experiments.first_calls [--out FILE] [MODEL ...]
    python -m experiments.first_calls [--out FILE] joints:3 joints:6 bodies:3

Every call of a model is made twice, each in a process of its own: with an empty kernel cache and
with that of the first process. For chains of spatial bodies (`experiments.mechanisms`), in
coordinates of joints or of bodies, a table shows many calls, made one after another in one process
with an empty kernel cache.
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
from experiments import mechanisms
from jaxmech import parts as jp
from jaxmech.config.environment import environment

MODELS = ("double_pendulum", "four_bars", "chain", "andrews")  # `chain` has ten links
BATCH = 64  # trajectories; their number does not change what is compiled


STEPS = jm.FixedSteps(per_save=4)  # the default cannot be chosen under `jax.jit` and `jax.grad`
CALLS = ("simulate", "batch", "acceleration", "assemble", "observe after simulate")
KINDS = ("joints", "bodies")  # coordinates of chains


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
        run = jax.jit(jax.vmap(lambda q, v: jm.simulate(system, q, v, ts, params, steps=STEPS)))
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


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """The CPU seconds of a call, and its result."""
    began = time.process_time()
    result = jax.block_until_ready(call())
    return time.process_time() - began, result


def measure_chain(name: str) -> None:
    """Print the CPU seconds of each call for a chain as a line of JSON, in this process."""
    kind, count = name.split(":")
    n, params = int(count), {}
    mechanism, (angles, rates) = mechanisms.chain(n, kind), mechanisms.state(n)
    starts = {f"j{k}": jp.Start(angles[k], velocity=rates[k]) for k in range(n)}
    if kind == "bodies":
        starts = mechanisms.poses(mechanisms.chain(n, "joints"), starts)
    system, ts = mechanism.system, jnp.linspace(0.0, 0.1, 11)

    def shown(call: str, run: Callable[[], Any]) -> Any:
        spent, result = seconds(run)
        print(json.dumps([call, round(spent, 2)]), flush=True)
        return result

    guess = mechanism.guess(starts)
    q, v = shown("assemble", lambda: jm.assemble(system, *guess, 0.0, params))
    shown("acceleration", lambda: jm.acceleration(system, q, v, 0.0, params))
    solution = shown("simulate", lambda: jm.simulate(system, q, v, ts, params))
    shown("observe", lambda: jm.observe(system, solution, params))
    shown("momentum", lambda: mechanism.momentum(q, v))
    shown(
        "simulate, Adaptive()",
        lambda: jm.simulate(system, q, v, ts, params, steps=jm.Adaptive()),
    )

    def end(v: jax.Array) -> jax.Array:
        return jm.simulate(system, q, v, ts, params, steps=STEPS).q[-1].sum()

    shown("gradient", lambda: jax.grad(end)(v))
    shown("linearize", lambda: jm.analysis.linearize(system, q, v, params, steady=False))
    shown("structure", lambda: jm.analysis.structure(system, q, v, params=params))
    shown("equilibrium", lambda: jm.analysis.equilibrium(system, q, params))


def chain_row(name: str) -> dict[str, float]:
    """The CPU seconds of each call for a chain, in a new process."""
    command = [sys.executable, "-m", "experiments.first_calls", "--one", "all", name]
    row = {}
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"JAXMECH_KERNEL_CACHE": cache}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout or ():
                call, spent = json.loads(line)
                row[call] = spent
                print(f"{name:16s} {call:22s} {spent:7.2f}", flush=True)
    return row


def in_a_process(name: str, call: str, cache: str) -> float:
    """Measure the CPU seconds of a call in a new process with a given kernel cache."""
    command = [sys.executable, "-m", "experiments.first_calls", "--one", call, name]
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
    if options.one == "all":
        measure_chain(options.models[0])
        return
    if options.one:
        print(measured(options.models[0], options.one))
        return
    names = options.models or MODELS
    chains = [name for name in names if name.startswith(KINDS)]
    rows: dict[str, Any] = {name: chain_row(name) for name in chains}
    names = [name for name in names if name not in chains]
    if not names:
        table(rows)
        save(options.out, rows)
        return
    print(f"{'CPU seconds':40s} empty cache   found on disk")
    for name in names:
        for call in CALLS:
            with tempfile.TemporaryDirectory() as cache:
                pair = [in_a_process(name, call, cache) for _ in range(2)]
            rows[f"{name} {call}"] = [round(x, 2) for x in pair]
            print(f"{name:16s} {call:22s} {pair[0]:5.2f}         {pair[1]:5.2f}", flush=True)
    save(options.out, rows)


def table(rows: dict[str, dict[str, float]]) -> None:
    """Print the rows of chains as a table of Markdown."""
    calls = list(dict.fromkeys(call for row in rows.values() for call in row))
    print("", f"| | {' | '.join(calls)} |", "|---" * (len(calls) + 1) + "|", sep="\n")
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(str(row.get(call, "")) for call in calls), "|")


def save(out: Path | None, rows: dict[str, Any]) -> None:
    if out is not None:
        report = {"CPU seconds, empty cache and found on disk": rows, "environment": environment()}
        out.write_text(json.dumps(report, indent=2, default=str) + "\n")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
