"""CPU seconds of first calls: tracing, compiling and the run itself.

    python -m experiments.first_calls [--out FILE] [MODEL ...]
    python -m experiments.first_calls [--out FILE] joints:3 joints:6 bodies:3

Every call of a model is made twice, each in a process of its own: with an empty kernel cache and
with that of the first process. For chains of spatial bodies (`experiments.mechanisms`), in
coordinates of joints or of bodies, a table shows many calls, made one after another in one process
with an empty kernel cache.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxmech as jm
from experiments import mechanisms
from experiments.measuring import in_a_process, table_head, table_row, timed, write
from jaxmech import parts as jp

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
    return timed(prepared(name, call), 0).first


def chain_row(name: str) -> dict[str, float]:
    """The CPU seconds of each call for a chain, which it prints, in this process."""
    kind, count = name.split(":")
    row: dict[str, float] = {}
    n, params = int(count), {}
    mechanism, (angles, rates) = mechanisms.chain(n, kind), mechanisms.state(n)
    starts = {f"j{k}": jp.Start(angles[k], velocity=rates[k]) for k in range(n)}
    if kind == "bodies":
        starts = mechanisms.poses(mechanisms.chain(n, "joints"), starts)
    system, ts = mechanism.system, jnp.linspace(0.0, 0.1, 11)

    def shown(call: str, run: Callable[[], Any]) -> Any:
        spent = timed(run, 0)
        row[call] = round(spent.first, 2)
        print(f"{name:16s} {call:22s} {spent.first:7.2f}", flush=True)
        return spent.result

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
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds of first calls.")
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", default=MODELS, help=", ".join(MODELS)
    )
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    chains: dict[str, dict[str, float]] = {}
    rows: dict[str, Any] = {}
    for name in options.models:
        if name.startswith(KINDS):
            with tempfile.TemporaryDirectory() as cache:
                chains[name] = in_a_process(chain_row, name, JAXMECH_KERNEL_CACHE=cache)
            continue
        for call in CALLS:
            with tempfile.TemporaryDirectory() as cache:
                pair = [
                    in_a_process(measured, name, call, JAXMECH_KERNEL_CACHE=cache) for _ in range(2)
                ]
            rows[f"{name} {call}"] = [round(x, 2) for x in pair]
            print(f"{name:16s} {call:22s} {pair[0]:5.2f}, found on disk {pair[1]:5.2f}", flush=True)
    if chains:
        calls = list(dict.fromkeys(call for row in chains.values() for call in row))
        print(table_head(["", *calls]))
        for name, row in chains.items():
            print(table_row([name, *map(row.get, calls)]))
    write(options.out, **{"CPU seconds, empty cache and found on disk": rows | chains})


if __name__ == "__main__":
    main()
