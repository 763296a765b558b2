"""Recordings of the study: motions without noise, and what a repeat records of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import jax
import numpy as np

import jaxmech as jm
from experiments.recovery.mechanisms import Case
from jaxmech.identify import Huber, Table, read_table

FINER = 8  # steps of the simulated recording per step of the fit
OUTLIERS = 0.01  # share of the samples
FAR = 30.0  # noise of these samples, in that of the others
CORRELATION = 0.9  # of the noise of neighbours in time

Kind = Literal["white", "outliers", "correlated"]
# what a user has to state of the noise
OPTIONS: dict[Kind, dict[str, Any]] = {
    "white": {},
    "outliers": {"loss": Huber()},
    "correlated": {},
}
WORDS: dict[Kind, str] = {
    "white": "",
    "outliers": f", {100 * OUTLIERS:g} % outliers, Huber",
    "correlated": f", correlation of {CORRELATION:g}",
}


@dataclass(frozen=True)
class Motion:
    """A motion without noise."""

    ts: np.ndarray
    observed: np.ndarray  # (T, d)
    x: np.ndarray  # start variables
    rate: np.ndarray
    inputs: dict[str, jm.Signal]


def motions(case: Case, count: int, ts: np.ndarray, per_save: int, seed: int) -> Iterator[Motion]:
    """Simulate motions from random states, in minimal coordinates."""
    rng = np.random.default_rng(seed)
    fine = jm.FixedSteps(per_save=FINER * per_save)
    for _ in range(count):
        x, rate = (rng.uniform(*ends) for ends in zip(case.low, case.high, strict=True))
        inputs = {"force": case.drive(rng, ts)} if case.drive else {}
        params = {**case.params, **inputs}
        sol = jm.simulate(case.minimal, x, rate, ts, params, steps=fine)
        yield Motion(ts, _shown(case, sol), x, rate, inputs)


def _shown(case: Case, sol: jm.Solution) -> Any:
    def one(x: Any, rate: Any, t: Any) -> Any:
        return case.observe(*case.start(x, rate, case.params), t, case.params)

    return np.asarray(jax.vmap(one)(sol.q, sol.v, sol.ts))


def noise_like(rng: np.random.Generator, shape: tuple[int, int], kind: Kind) -> np.ndarray:
    """Draw noise (T, d) of unit size."""
    noise = rng.normal(size=shape)
    if kind == "outliers":
        far = rng.random(shape) < OUTLIERS
        return np.where(far, FAR * rng.normal(size=shape), noise)
    if kind == "correlated":
        for k in range(1, len(noise)):
            noise[k] = CORRELATION * noise[k - 1] + np.sqrt(1 - CORRELATION**2) * noise[k]
    return noise


def from_a_file(case: Case, observed: list[np.ndarray], recorded: list[Motion]) -> Any:
    """Read sensors (T, d) of each motion, and its input, back from a CSV file."""
    sensors = [f"sensor{k + 1} [{unit}]" for k, unit in enumerate(case.units)]
    inputs = list(recorded[0].inputs)
    lines = [",".join(["number", "t", *sensors, *inputs])]
    for number, (shown, motion) in enumerate(zip(observed, recorded, strict=True)):
        columns = [*shown.T, *(signal.values for signal in motion.inputs.values())]
        for t, *row in zip(motion.ts, *columns, strict=True):
            lines.append(",".join([str(number), f"{t:.4f}", *(f"{x:.12g}" for x in row)]))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sensors.csv"
        file.write_text("\n".join(lines), encoding="utf-8")
        table = Table(
            file=str(file), observed=tuple(sensors), time="t", recording="number",
            q0=tuple(sensors[: recorded[0].x.size]), inputs={name: name for name in inputs},
            interpolation="hold",
        )  # fmt: skip
        return read_table(table).train
