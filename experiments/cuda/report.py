"""The results as Markdown and as pictures."""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

Row = dict[str, Any]


def registers(rows: Sequence[Row], missing: Sequence[str], ptxas: str) -> str:
    """Write the table of registers, spills and compile times, and its missing entries."""
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
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(_cells(row, names))} |" for row in rows),
        "",
        *_summary(rows),
        *([f"Not computed: {'; '.join(missing)}."] if missing else []),
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
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")
    return figure


def variants(rows: Sequence[Row]) -> Figure:
    """Plot the speed over the block size and over the register limit."""
    figure = Figure(figsize=(10, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for name in dict.fromkeys(f"{row['model']}, {row['way']}" for row in rows):
        own = [row for row in rows if f"{row['model']}, {row['way']}" == name]
        free = [row for row in own if row["register_limit"] is None]
        bound = [row for row in own if row["register_limit"] is not None]
        for ax, some, key in ((left, free, "block"), (right, bound, "register_limit")):
            ax.semilogy([x[key] for x in some], [x["steps_per_second"] for x in some], "o-",
                        label=name)  # fmt: skip
    left.set(xlabel="threads in a block", ylabel="trajectory-steps per second")
    right.set(xlabel="most registers of a thread")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize="small")
    return figure
