"""Accuracy of drift controls and solvers through a singular pose.

Parallel four-bars in a row are collinear twice per turn. There the rank of the constraints drops,
and many codes stop or continue on the wrong branch (problem A02 of the IFToMM multibody benchmark
library). The exact motion is that of a pendulum: with psi the angle of the cranks from the downward
vertical,

    psi = 2 am(K(m) - a t | m),  a = sqrt(E / 2),  m = 2 c / E,  E = 1/2 + 2 c,
    c = ((N + 1) / 2 + N) g / (((N + 1) / 3 + N) l).

Usage: python -m experiments.singular_pose [runs/singular_pose]
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.special import ellipj, ellipk

import jaxmech as jm
from experiments.measuring import table_head, table_row, write
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
    errors = np.linalg.norm(head - exact_head(TIMES, BARS, model.params), axis=1)
    return {
        "drift": drift,
        "solver": type(solver).__name__,
        "status": jm.Status(int(solution.status)).name,
        "error": float(errors[-1]),
        "largest_error": float(np.max(errors)),
        "position_residual": float(np.nanmax(solution.position_residual)),
        "energy_drift": float(solution.energy_drift),
        "errors": errors.tolist(),  # at every saved time
    }


def exact_head(ts: np.ndarray, bars: int, params: dict[str, float]) -> np.ndarray:
    """The head of the first crank [m], shape (T, 2), from the default initial state."""
    c = ((bars + 1) / 2 + bars) * params["g"] / (((bars + 1) / 3 + bars) * params["l"])
    energy = 0.5 + 2 * c
    m = 2 * c / energy
    psi = 2 * ellipj(ellipk(m) - np.sqrt(energy / 2) * ts, m)[3]
    return params["l"] * np.stack([np.sin(psi), -np.cos(psi)], axis=1)


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


def main(out: Path) -> None:
    """Run all variants and write a folder."""
    out.mkdir(parents=True, exist_ok=True)
    passages = [passage(*variant) for variant in variants()]
    write(out / "results.json", passages=passages)
    (out / "table.md").write_text(table(passages) + "\n", encoding="utf-8")
    with styled():
        draw(passages).savefig(out / "errors.png")
    print(table(passages))
    print(f"\nWritten to {out}/: results.json, table.md, errors.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(Path(sys.argv[1] if sys.argv[1:] else "runs/singular_pose"))
