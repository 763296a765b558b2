"""Usage: python -m experiments.recovery [configs/recovery.toml] [runs/recovery].

Parameters of a pendulum, a double pendulum, a four-bar, a driven cart-pole and a rolling disc are
fitted. The initial states are known exactly, or measured, or only positions are recorded and all
settings are the defaults. The noise is white, or has outliers and the loss is robust, or is
correlated in time and stated to be. The script exits with 1 unless

- every fit without noise finds every parameter to a relative error of 1e-6;
- with noise on what is measured, the stated 95 % interval of every parameter contains the true
  value in 90 to 99 % of the repeats (of 200 repeats 95 % on average, +- 1.5 % by chance);
- every fit converges.
"""

import json
import re
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import fill

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm

from experiments.recovery.study import Recovery, Result, run
from jaxmech.config.environment import environment
from jaxmech.config.toml import ConfigError, read
from jaxmech.ensemble.cluster import connected, mapped
from jaxmech.plot.panels import styled

_WIDE = 42  # letters in a line of a title


def table(results: list[Result]) -> str:
    """Format the results as a Markdown table."""
    heads = (
        "mechanism", "starts", "noise", "recordings", "parameter", "truth",
        "error without noise", "truth in 95 % interval", "stated standard error",
        "scatter of the estimates", "warned",
    )  # fmt: skip
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    rows += [
        f"| {one.series.mechanism} | {one.series.starts} | {one.disturbance} "
        f"| {one.series.recordings} | {row.name} | {row.truth:g} | {row.error:.1e} "
        f"| {100 * row.coverage:.1f} % | {row.stated:.2e} | {row.scatter:.2e} "
        f"| {100 * one.warned:.1f} % |"
        for one in results
        for row in one.rows
    ]
    return "\n".join(rows)


def summary(results: list[Result]) -> str:
    """Format the ranges over the parameters of each series as a Markdown table."""
    heads = (
        "mechanism", "starts", "noise", "recordings", "parameters", "truth in the 95 % interval",
        "error without noise, at most", "warned",
    )  # fmt: skip
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*rows, *(_ranges(one) for one in results)])


def _ranges(one: Result) -> str:
    shares = [100 * row.coverage for row in one.rows]
    return (
        f"| {one.series.mechanism} | {one.series.starts} | {one.disturbance} "
        f"| {one.series.recordings} | {len(one.rows)} | {min(shares):.1f} to {max(shares):.1f} % "
        f"| {max(row.error for row in one.rows):.0e} | {100 * one.warned:.1f} % |"
    )


def draw(results: list[Result]) -> Figure:
    """Plot quantiles of the deviations, in standard errors, against those of a normal law."""
    columns = min(len(results), 4)
    rows = -(-len(results) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.4 * columns, 3.4 * rows), layout="constrained", sharey=True,
        squeeze=False,
    )  # fmt: skip
    for ax, one in zip(axes.flat, results, strict=False):
        _draw(ax, one)
    for ax in axes.flat[len(results) :]:
        ax.axis("off")
    for ax in axes[:, 0]:
        ax.set_ylabel("(estimate - truth) / stated error")
    return figure


def _draw(ax: Axes, result: Result) -> None:
    ax.axline((0, 0), slope=1, color="0.6", lw=1)
    for row in result.rows:
        count = len(row.scores)
        ax.plot(norm.ppf((np.arange(count) + 0.5) / count), np.sort(row.scores), ".", ms=3,
                label=row.name)  # fmt: skip
    title = re.sub(r"(?<!,) ", "\xa0", result.title)  # lines end at commas
    ax.set_title(fill(title, _WIDE), fontsize="small")
    ax.set_xlabel("normal quantile")
    ax.legend(fontsize="small", markerscale=2)


def main(config: Path, out: Path) -> int:
    """Run the study of a configuration file, write the run folder, and return the exit code."""
    study = read(config, Recovery)
    out.mkdir(parents=True, exist_ok=True)
    with connected(study.cluster) as client:
        workers = map if client is None else partial(mapped, client)
        results = list(run(study, progress=sys.stderr.isatty(), workers=workers))
    missed = [text for one in results for text in one.missed]
    facts = {
        "config": asdict(study),
        "environment": environment(),
        "results": [asdict(one) for one in results],
        "missed": missed,
    }
    (out / "results.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    tables = [summary(results), table(results)]
    (out / "table.md").write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    with styled():
        draw(results).savefig(out / "quantiles.png")
    print(summary(results))
    print("".join(f"\nMissed: {text}" for text in missed) or "\nAll targets are reached.")
    print(f"Written to {out}/: results.json, table.md, quantiles.png")
    return int(bool(missed))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    arguments = [Path(argument) for argument in sys.argv[1:]]
    defaults = [Path("configs/recovery.toml"), Path("runs/recovery")]
    try:
        sys.exit(main(*(arguments + defaults[len(arguments) :])))
    except ConfigError as error:
        sys.exit(str(error))
