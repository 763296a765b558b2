"""Accuracy of drift controls and solvers through a singular pose.

Parallel four-bars in a row are collinear twice per turn. There the rank of the constraints drops,
and many codes stop or continue on the wrong branch (problem A02 of the IFToMM multibody benchmark
library). The exact motion is that of a pendulum: with psi the angle of the cranks from the downward
vertical,

    psi = 2 am(K(m) - a t | m),  a = sqrt(E / 2),  m = 2 c / E,  E = 1/2 + 2 c,
    c = ((N + 1) / 2 + N) g / (((N + 1) / 3 + N) l).

Usage: python experiments/singular_pose.py [configs/singular_pose.toml] [runs/singular_pose]
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy.special import ellipj, ellipk

import jaxmech as jm
from jaxmech.config.environment import environment
from jaxmech.config.toml import ConfigError, read
from jaxmech.plot.panels import styled


@dataclass(frozen=True, kw_only=True)
class SingularPose:
    """The keys of the configuration."""

    bars: int = 2  # four-bars in the row
    end: float = 10.0  # length of the run [s]
    step: float = 1e-3  # of RK4 [s]
    saves: int = 101  # saved times
    baumgarte: float = 20.0  # alpha = beta of the Baumgarte variant [1/s]


@dataclass(frozen=True)
class Passage:
    """The result of one variant; errors are distances of the first head from the closed form."""

    drift: str  # drift control
    solver: str  # of the law of motion
    status: str
    error: float  # at the end [m]
    largest_error: float  # [m]
    position_residual: float  # largest violation of a joint [m]
    energy_drift: float  # largest change of the energy [J]
    errors: list[float]  # at every saved time [m]


def variants(study: SingularPose) -> Iterator[tuple[str, object, object]]:
    """Yield the names of drift controls, the controls, and the solvers."""
    for solver in (jm.laws.LDL(), jm.laws.QR(), jm.laws.SVD()):
        yield "projection", jm.Projection(), solver
    feedback = jm.Baumgarte(study.baumgarte, study.baumgarte)
    for solver in (jm.laws.LDL(), jm.laws.QR()):
        yield "Baumgarte", feedback, solver
    for solver in (jm.laws.LDL(), jm.laws.QR()):
        yield "none", None, solver


def passage(study: SingularPose, drift: str, projection: object, solver: object) -> Passage:
    """Run one variant of the study."""
    model = jm.models.four_bars(study.bars)
    ts = np.linspace(0.0, study.end, study.saves)
    solution = jm.simulate(
        model.system,
        *model.initial(),
        ts,
        model.params,
        steps=jm.FixedSteps(per_save=round((ts[1] - ts[0]) / study.step)),
        projection=projection,
        formulation=jm.laws.UdwadiaKalaba(solver=solver),
        throw=False,
    )
    head = 2 * np.asarray(solution.q[:, :2])  # the foot of crank 0 is the origin
    errors = np.linalg.norm(head - exact_head(ts, study.bars, model.params), axis=1)
    return Passage(
        drift=drift,
        solver=type(solver).__name__,
        status=jm.Status(int(solution.status)).name,
        error=float(errors[-1]),
        largest_error=float(np.max(errors)),
        position_residual=float(np.nanmax(solution.position_residual)),
        energy_drift=float(solution.energy_drift),
        errors=errors.tolist(),
    )


def exact_head(ts: np.ndarray, bars: int, params: dict[str, float]) -> np.ndarray:
    """The head of the first crank [m], shape (T, 2), from the default initial state."""
    c = ((bars + 1) / 2 + bars) * params["g"] / (((bars + 1) / 3 + bars) * params["l"])
    energy = 0.5 + 2 * c
    m = 2 * c / energy
    psi = 2 * ellipj(ellipk(m) - np.sqrt(energy / 2) * ts, m)[3]
    return params["l"] * np.stack([np.sin(psi), -np.cos(psi)], axis=1)


def table(passages: list[Passage]) -> str:
    """Format the results as a Markdown table."""
    rows = [
        "| drift control | solver | status | error at the end | joint violation | energy drift |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {p.drift} | {p.solver} | {p.status} | {p.error:.1e} m | {p.position_residual:.1e} m "
        f"| {p.energy_drift:.1e} J |"
        for p in passages
    ]
    return "\n".join(rows)


def draw(ts: np.ndarray, passages: list[Passage], ax: Axes | None = None) -> Axes:
    """Plot the error over time, one line per variant."""
    ax = plt.subplots(figsize=(8, 4.5), layout="constrained")[1] if ax is None else ax
    styles = {"projection": "-", "Baumgarte": "--", "none": ":"}
    for p in passages:
        label = f"{p.drift}, {p.solver}"
        ax.semilogy(ts[1:], np.maximum(p.errors[1:], 1e-16), styles[p.drift], label=label)
    ax.set(xlabel="time [s]", ylabel="error of the head of crank 0 [m]")
    ax.set_title("Two four-bars in a row through their singular poses")
    ax.legend(ncols=4, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return ax


def main(config: Path, out: Path) -> None:
    """Run the study of a configuration file and write the run folder."""
    study = read(config, SingularPose)
    out.mkdir(parents=True, exist_ok=True)
    passages = [passage(study, *variant) for variant in variants(study)]
    results = {
        "config": asdict(study),
        "environment": environment(),
        "passages": [asdict(p) for p in passages],
    }
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / "table.md").write_text(table(passages) + "\n", encoding="utf-8")
    with styled():
        axes = draw(np.linspace(0.0, study.end, study.saves), passages)
        axes.figure.savefig(out / "errors.png")
    print(table(passages))
    print(f"\nWritten to {out}/: results.json, table.md, errors.png")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    arguments = [Path(argument) for argument in sys.argv[1:]]
    defaults = [Path("configs/singular_pose.toml"), Path("runs/singular_pose")]
    try:
        main(*(arguments + defaults[len(arguments) :]))
    except ConfigError as error:
        sys.exit(str(error))
