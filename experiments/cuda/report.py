"""The results as Markdown and as pictures."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.measuring import table_head, table_row

Row = dict[str, Any]


def registers(rows: Sequence[Row], ptxas: str) -> str:
    """Write the table of registers, spills and compile times."""
    names = list(dict.fromkeys(name for row in rows for name in row["architectures"]))
    head = ["model", "n", "kernel of", "type", "operations", "LLVM [s]", *names]
    lines = [
        "# Registers of GPU kernels",
        "",
        "Made by `python -m experiments.cuda --offline`. RK4, a hundred steps, one kernel for each",
        "line; of a gradient the first kernel is the forward run that keeps states. For each",
        f"architecture: registers of a thread (of 255), bytes spilled, seconds of ptxas {ptxas}.",
        "Seconds are those of the processor.",
        "",
        *_table(head, (_cells(row, names) for row in rows)),
        "",
        *_summary(rows),
    ]
    return "\n".join(lines) + "\n"


def _cells(row: Row, names: Sequence[str]) -> Iterator[str]:
    number = f" ({row['kernel'] + 1})" if row["kernels"] > 1 else ""
    yield from (row["model"], str(row["coordinates"]), row["way"] + number, row["type"])
    yield from (f"{row['operations']:,}", f"{row['llvm_seconds']:.2f}")
    for name in names:
        one = row["architectures"][name]
        spilled = f"{one['spilled']:,} B" if one["spilled"] else "–"
        yield f"{one['registers']}, {spilled}, {one['seconds']:.2f}"


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    spilled = [row for row in rows if any(x["spilled"] for x in row["architectures"].values())]
    small = [row for row in spilled if row["coordinates"] <= 4]
    yield f"{len(rows)} kernels, {len(spilled)} of which spill on some architecture."
    of_models = sum(row["coordinates"] <= 4 for row in rows)
    yield f"Of the {of_models} kernels of models with n ≤ 4, {len(small)} spill:"
    yield ""
    for dtype in dict.fromkeys(row["type"] for row in small):
        ways: dict[str, dict[str, None]] = {}
        for row in small:
            if row["type"] == dtype:
                ways.setdefault(row["model"], {})[row["way"]] = None
        listed = "; ".join(f"{model} ({', '.join(found)})" for model, found in ways.items())
        yield f"- in {dtype}: {listed}"
    yield ""
    double = sum(row["type"] == "float32" and row["lines_in_double"] > 0 for row in rows)
    yield f"Kernels in float32 with an instruction in double precision: {double}."


def speeds(rows: Sequence[Row]) -> Figure:
    """Plot trajectory-steps per second over the size of the batch."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    ax = figure.subplots()
    for name in dict.fromkeys(f"{row['model']}, {row['type']}" for row in rows):
        own = [row for row in rows if f"{row['model']}, {row['type']}" == name]
        ax.loglog([x["batch"] for x in own], [x["steps_per_second"] for x in own], "o-", label=name)
    ax.set(xlabel="trajectories in the batch", ylabel="trajectory-steps per second")
    ax.legend()
    return figure


def measured(results: Row) -> str:
    """Write the tables of the speeds."""
    about, (gpu, *_) = results["environment"], results["environment"]["devices"]["cuda"]
    lines = [
        "# Speeds on a GPU",
        "",
        f"Made by `python -m experiments.cuda --out FOLDER` on an {gpu}, with",
        f"JAX {about['jax']}; the CPU is that of the same machine, of {about['processors']} cores.",
        "All numbers, and the differences of all results from those of the CPU, are in",
        "[cuda.json](cuda.json). RK4; seconds are those of the fastest of up to five calls.",
        "",
        "## Batches",
        "",
        "Million trajectory-steps per second of the bare kernel (no projection, the last state):",
        "",
        *_table(["model", "type", *_sizes(results["batches"]), "operations of a step"],
                _batch_rows(results["batches"])),
        "",
        "## Ways",
        "",
        "The double pendulum in float64: *forward* is the bare kernel, *projection* the same with",
        "projection, *solution* everything that `simulate` returns, *gradient* in reverse mode by",
        "initial state and parameters, *sensitivities* two derivatives in forward mode.",
        "",
        *_table(["route", "way", "trajectories", "million steps per second"],
                ([row["route"], row["way"], f"{row['batch']:,}", _millions(row)]
                 for row in [*results["compared"],
                             *({"route": "kernel", **row} for row in results["ten_million"])])),
        "",
        "## What users do",
        "",
        "Double pendulums of 1,000 steps, and the evaluations of a fit of ten parameters to 26",
        "recordings of 2,666 steps (`experiments.cuda.fits`). *First* includes compiling; a",
        "study compiles in every call, though the second one finds the kernels of the first.",
        "",
        *_table(["", "type", "trajectories", "GPU [ms]", "CPU [ms]", "CPU / GPU", "first, GPU [s]",
                 "first, CPU [s]"], _use_rows(results["uses"])),
        "",
        "## Chains of spatial bodies",
        "",
        "With hinges, in coordinates of joints (`experiments.mechanisms`), 100 steps of which the",
        "last angles are used. MJX makes the same steps on the same GPU, with matrix products in",
        "full precision. All compile at once. Million trajectory-steps per second:",
        "",
        *_table(["bodies", "type", *(f"jaxmech, {n}" for n in _sizes(_of_chains(results))),
                 *(f"MJX, {n}" for n in _sizes(_of_chains(results, "MJX"))),
                 "compiling, jaxmech [s]", "MJX [s]"], _chain_rows(results)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield table_head(head)
    yield from map(table_row, rows)


def _sizes(rows: Sequence[Row]) -> list[str]:
    return [f"{size:,}" for size in dict.fromkeys(row["batch"] for row in rows) if size]


def _millions(row: Row) -> str:
    rounded = float(f"{row['steps_per_second'] / 1e6:.3g}")
    return f"{rounded:,g}"


def _batch_rows(rows: Sequence[Row]) -> Iterator[list[str]]:
    for model, dtype in dict.fromkeys((row["model"], row["type"]) for row in rows):
        some = [row for row in rows if (row["model"], row["type"]) == (model, dtype)]
        yield [model, dtype, *map(_millions, some), f"{some[0]['operations']:,.0f}"]


def _use_rows(rows: Sequence[Row]) -> Iterator[list[str]]:
    for cpu, gpu in zip(rows[::2], rows[1::2], strict=False):
        seconds = gpu["seconds"], cpu["seconds"]
        yield [
            gpu["use"], gpu["type"], f"{gpu['trajectories']:,}",
            *(f"{1e3 * x:,.3g}" if x < 1 else f"{1e3 * x:,.0f}" for x in seconds),
            f"{seconds[1] / seconds[0]:.2g}", f"{gpu['first_seconds']:.1f}",
            f"{cpu['first_seconds']:.1f}",
        ]  # fmt: skip


def _of_chains(results: Row, engine: str = "jaxmech") -> list[Row]:
    return [row for row in results["chains"] if row["engine"] == engine and row["batch"]]


def _chain_rows(results: Row) -> Iterator[list[str]]:
    ours, peer = _of_chains(results), _of_chains(results, "MJX")
    width = len(_sizes(peer))
    for bodies, dtype in sorted(dict.fromkeys((row["bodies"], row["type"]) for row in ours)):
        mine, other = (
            [row for row in rows if (row["bodies"], row["type"]) == (bodies, dtype)]
            for rows in (ours, peer)
        )
        first = [f"{rows[0]['compile_seconds']:.0f}" if rows else "–" for rows in (mine, other)]
        others = [*map(_millions, other)] or ["–"] * width
        yield [str(bodies), dtype, *map(_millions, mine), *others, *first]
