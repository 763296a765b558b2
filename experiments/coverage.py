"""How often the stated 95 % intervals of a fit hold the true parameters, on synthetic recordings.

    python -m experiments.coverage [--repeats 200] [--recordings 4] [--json FILE]

A pendulum, and a double pendulum with friction in both hinges, whose recordings are simulated in
angles, without constraints, and fitted in Cartesian coordinates with rods as constraints. All
repeats have the same motions; each draws its own noise, recorded starts and initial guess.

Starts are "exact" (recorded without error, and fixed), "measured" (recorded with noise, whose size
is `start_sd`, and fitted), or "positions" (neither rates nor the size of the noise are recorded,
and all settings of `fit` are the defaults). The noise is white, or has outliers and `loss=Huber()`,
or is correlated in time. The last columns have the largest relative error without noise, and how
many fits with noise have a remark.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.measuring import table_head, table_row, write

DURATION, RATE = 1.5, 200.0  # of a recording [s], [Hz]
PER_SAVE, FINER = 2, 8  # steps from sample to sample in a fit; of the simulated recording in each
START_SD, RATE_SD = 0.002, 0.01  # of measured starts [rad] and their rates [rad/s]
SPREAD, EXACT = 0.1, 5  # relative error of initial guesses; fits without noise
OUTLIERS, FAR, CORRELATION = 0.01, 30.0, 0.9
SERIES = (  # mechanism, starts, kind of noise, its standard deviation [rad]
    ("double pendulum", "exact", "white", 1e-3),
    ("double pendulum", "measured", "white", 1e-3),
    ("pendulum", "positions", "white", 1e-3),
    ("pendulum", "positions", "white", 1e-2),
    ("pendulum", "positions", "outliers", 1e-2),
    ("pendulum", "positions", "correlated", 1e-2),
    ("double pendulum", "positions", "white", 3e-3),
)
HEAD = "mechanism", "starts", "noise", "recordings", "parameters", "truth in the 95 % interval", \
    "error without noise, at most", "with a remark"  # fmt: skip
Params = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A mechanism whose parameters are to be recovered."""

    system: jm.System
    minimal: jm.System  # the same in the angles of its start, without constraints
    start: Callable[..., Any]  # the state for angles and rates
    observe: Callable[..., Any]  # the angles
    params: Params  # the true ones
    free: tuple[str, ...]  # the fitted ones
    low: tuple[tuple[float, ...], ...]  # of the angles and rates at the start
    high: tuple[tuple[float, ...], ...]


def pendulum() -> Case:
    """One rod with friction in its hinge; its frequency and damping are fitted."""
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v + p["omega"] ** 2 * jnp.cos(q[0]),
        force=lambda q, v, t, p: -p["c"] * v,
        coordinates=("theta",),
    )
    truth, ends = {"omega": 3.5, "c": 0.2}, (((0.6,), (-1.0,)), ((1.4,), (1.0,)))
    return Case(
        system, system, lambda x, rate, p: (x, rate), lambda q, v, t, p: q, truth, ("omega", "c"),
        *ends,
    )  # fmt: skip


def double_pendulum() -> Case:
    """Two rods with friction in both hinges; m1 and g are known, the rest is relative to them."""
    model = jm.models.double_pendulum()

    def start(x: Any, rate: Any, p: Params) -> Any:
        names = "theta1", "theta2", "omega1", "omega2"
        return model.state(dict(zip(names, (*x, *rate), strict=True)), p)

    def friction(q: Any, v: Any, t: Any, p: Params) -> Any:
        def dissipation(v: Any) -> Any:
            r, w = q[2:] - q[:2], v[2:] - v[:2]
            first = (q[0] * v[1] - q[1] * v[0]) / p["l1"] ** 2
            second = (r[0] * w[1] - r[1] * w[0]) / p["l2"] ** 2
            return 0.5 * p["c1"] * first**2 + 0.5 * p["c2"] * (second - first) ** 2

        return -jax.grad(dissipation)(v)

    def angles(q: Any, v: Any, t: Any, p: Params) -> Any:
        rod = q[2:] - q[:2]
        return jnp.stack([jnp.arctan2(q[0], -q[1]), jnp.arctan2(rod[0], -rod[1])])

    def lagrangian(x: Any, rate: Any, t: Any, p: Params) -> Any:
        return model.system.lagrangian(*start(x, rate, p), t, p)

    def work(x: Any, rate: Any, t: Any, p: Params) -> Any:  # of the friction, for each angle
        _, pull = jax.vjp(lambda x: start(x, rate, p)[0], x)
        return pull(friction(*start(x, rate, p), t, p))[0]

    return Case(
        jm.System(
            model.system.lagrangian, model.system.constraints, friction,
            coordinates=model.system.coordinates,
        ),
        jm.System(lagrangian, force=work, coordinates=("theta1", "theta2")),
        start,
        angles,
        {"m1": 1.0, "m2": 0.6, "l1": 0.8, "l2": 0.5, "g": 9.81, "c1": 0.15, "c2": 0.05},
        ("m2", "l1", "l2", "c1", "c2"),
        low=((-1.2, -1.2), (-1.0, -1.0)),
        high=((1.2, 1.2), (1.0, 1.0)),
    )  # fmt: skip


CASES = {"pendulum": pendulum, "double pendulum": double_pendulum}


def motions(case: Case, count: int, ts: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Angles (T, d), and the angles and rates at the start, of random motions."""
    rng, recorded = np.random.default_rng(1), []
    steps = jm.FixedSteps(per_save=FINER * PER_SAVE)
    for _ in range(count):
        x, rate = (rng.uniform(*ends) for ends in zip(case.low, case.high, strict=True))
        sol = jm.simulate(case.minimal, x, rate, ts, case.params, steps=steps)
        states = jax.vmap(lambda x, rate: case.start(x, rate, case.params))(sol.q, sol.v)
        show = jax.vmap(lambda q, v, t: case.observe(q, v, t, case.params))
        recorded.append((np.asarray(show(*states, sol.ts)), x, rate))
    return recorded


def noise_like(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Noise of unit size."""
    noise = rng.normal(size=shape)
    if kind == "outliers":
        return np.where(rng.random(shape) < OUTLIERS, FAR * rng.normal(size=shape), noise)
    if kind == "correlated":
        for k in range(1, len(noise)):
            noise[k] = CORRELATION * noise[k - 1] + np.sqrt(1 - CORRELATION**2) * noise[k]
    return noise


def repeat(
    case: Case, recorded: list[Any], ts: np.ndarray, starts: str, kind: str, size: float,
    number: int,
) -> Any:  # fmt: skip
    """Fit number 0, 1, ... with noise; a negative number means without noise."""
    rng = np.random.default_rng([1, number % 2**32])
    guess = {name: case.params[name] * rng.uniform(1 - SPREAD, 1 + SPREAD) for name in case.free}
    noisy, measured = number >= 0, starts == "measured"
    recordings = []
    for angles, x, rate in recorded:
        seen = angles + (size * noise_like(rng, angles.shape, kind) if noisy else 0.0)
        if starts == "positions":
            recordings.append(
                jm.Recording(ts, seen, seen[0], np.gradient(seen[:3], ts[1], axis=0)[0])
            )
            continue
        sds = (START_SD, RATE_SD) if measured else (0.0, 0.0)
        x0, v0 = (y + sd * rng.normal(size=y.shape) for y, sd in zip((x, rate), sds, strict=True))
        start_sd = sds if noisy and measured else None
        recordings.append(jm.Recording(ts, seen, x0, v0, weights=1 / size, start_sd=start_sd))
    options: dict[str, Any] = {"loss": jm.identify.Huber()} if noisy and kind == "outliers" else {}
    if starts != "positions":
        options["bounds"] = dict.fromkeys(case.free, (0, None))
        options["initial_states"] = "free" if measured else "fixed"
    return jm.fit(
        case.system, recordings, {**case.params, **guess}, observe=case.observe, start=case.start,
        free=case.free, steps=jm.FixedSteps(per_save=PER_SAVE), **options,
    )  # fmt: skip


def row(name: str, starts: str, kind: str, size: float, repeats: int, count: int) -> dict[str, Any]:
    """One line of the table."""
    case, ts = CASES[name](), np.arange(round(DURATION * RATE) + 1) / RATE
    recorded = motions(case, count, ts)
    fits = [
        repeat(case, recorded, ts, starts, kind, size, number) for number in range(-EXACT, repeats)
    ]
    exact, noisy = fits[:EXACT], fits[EXACT:]
    truth = np.array([case.params[name] for name in exact[0].names])
    low, high = np.moveaxis([x.uncertainty.reliable_interval(0.95) for x in noisy], 2, 0)
    shares = 100 * np.mean((low <= truth) & (truth <= high), axis=0)
    values = (
        name, starts, f"{1e3 * size:g} mrad, {kind}", count, len(truth),
        f"{shares.min():.1f} to {shares.max():.1f} %",
        f"{max(np.abs(x.values / truth - 1).max() for x in exact):.0e}",
        f"{100 * np.mean([bool(x.notes) for x in noisy]):.1f} %",
    )  # fmt: skip
    return dict(zip(HEAD, values, strict=True))


def main() -> None:
    """Print a table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--recordings", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(table_head(HEAD), flush=True)
    rows = []
    for series in SERIES:
        rows.append(row(*series, options.repeats, options.recordings))
        print(table_row(rows[-1].values()), flush=True)
    write(options.json, rows=rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
