"""Accuracy of drift controls and solvers through a singular pose.

Parallel four-bars in a row are collinear twice per turn. There the rank of the constraints drops,
and many codes stop or continue on the wrong branch (problem A02 of the IFToMM multibody benchmark
library). The exact motion is that of a pendulum.

Usage: python -m experiments.singular_pose docs/pictures/singular_pose.png
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import jaxmech as jm
from experiments.measuring import table_head, table_row
from experiments.work_precision.cases import cranks
from jaxmech.plot.panels import styled

BARS = 2  # four-bars in the row
STEP = 1e-3  # of RK4 [s]
TIMES = np.linspace(0.0, 10.0, 101)  # [s]
FEEDBACK = jm.Baumgarte(20.0, 20.0)  # [1/s]


def variants() -> Iterator[tuple[str, object, object]]:
    """Yield the names of drift controls, the controls, and the solvers."""
    for solver in (jm.laws.LDL(), jm.laws.QR(), jm.laws.SVD()):
        yield "projection", jm.Projection(), solver
    for solver in (jm.laws.LDL(), jm.laws.QR()):
        yield "Baumgarte", FEEDBACK, solver
    for solver in (jm.laws.LDL(), jm.laws.QR()):
        yield "none", None, solver


def passage(drift: str, projection: object, solver: object) -> dict[str, Any]:
    """Run one variant; errors are distances of the first head from the closed form [m]."""
    model = jm.models.four_bars(BARS)
    solution = jm.simulate(
        model.system, *model.initial(), TIMES, model.params,
        steps=jm.FixedSteps(per_save=round(TIMES[1] / STEP)), projection=projection,
        formulation=jm.laws.UdwadiaKalaba(solver=solver), throw=False,
    )  # fmt: skip
    head = 2 * np.asarray(solution.q[:, :2])  # the foot of crank 0 is the origin
    psi, _ = cranks(TIMES, BARS, model.params["g"], model.params["l"])
    exact = model.params["l"] * np.stack([np.sin(psi), -np.cos(psi)], axis=1)
    errors = np.linalg.norm(head - exact, axis=1)
    return {
        "drift": drift,
        "solver": type(solver).__name__,
        "status": jm.Status(int(solution.status)).name,
        "error": float(errors[-1]),
        "position_residual": float(np.nanmax(solution.position_residual)),
        "energy_drift": float(solution.energy_drift),
        "errors": errors,  # at every saved time
    }


def table(passages: list[dict[str, Any]]) -> str:
    """Format the results as a Markdown table."""
    head = "drift control", "solver", "status", "error at the end", "joint violation"
    rows = [
        table_row([
            p["drift"], p["solver"], p["status"], f"{p['error']:.1e} m",
            f"{p['position_residual']:.1e} m", f"{p['energy_drift']:.1e} J",
        ])
        for p in passages
    ]  # fmt: skip
    return "\n".join([table_head([*head, "energy drift"]), *rows])


def draw(passages: list[dict[str, Any]]) -> Figure:
    """Plot the error over time, one line per variant."""
    figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    styles = {"projection": "-", "Baumgarte": "--", "none": ":"}
    for p in passages:
        label, errors = f"{p['drift']}, {p['solver']}", np.maximum(p["errors"][1:], 1e-16)
        ax.semilogy(TIMES[1:], errors, styles[p["drift"]], label=label)
    ax.set(xlabel="time [s]", ylabel="error of the head of crank 0 [m]")
    ax.set_title("Two four-bars in a row through their singular poses")
    ax.legend(ncols=4, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure


def main(picture: Path) -> None:
    """Run all variants, print their table and draw their errors."""
    passages = [passage(*variant) for variant in variants()]
    print(table(passages))
    with styled():
        draw(passages).savefig(picture)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(Path(sys.argv[1]))
