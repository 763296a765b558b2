"""Simulation-based calibration of `posterior`: whether its draws have the right distribution.

    python -m experiments.calibration [--repeats 100] [--out FOLDER]

The parameters of a damped pendulum and its initial state are drawn from their priors, a recording
is simulated with a finer step than that of the fit, and the posterior is sampled. The number of
draws below the true value, its rank, is then uniform on 0 ... L (Talts, Betancourt, Simpson,
Vehtari and Gelman, "Validating Bayesian inference algorithms with simulation-based calibration",
2018). The draws are the last ones of L = 63 chains, which are independent. The table has chi-square
tests of the ranks in eight bins; `--out` writes a picture of them and `ranks.json`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import binom, chisquare

import jaxmech as jm
from jaxmech.identify import posterior

CHAINS = 63
BINS = 8
NOISE = 0.02  # rad
PRIORS = {"w2": (20.0, 1.0), "c": (0.5, 0.1)}
START, START_SD = (0.9, 0.0), (0.02, 0.1)  # rad, rad/s
TS = np.linspace(0.0, 2.0, 41)


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    """That of a pendulum of unit inertia."""
    return v @ v / 2 + p["w2"] * jnp.cos(q[0])


PENDULUM = jm.System(lagrangian, force=lambda q, v, t, p: -p["c"] * v, coordinates=("angle",))


def ranks_of(seed: int) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the numbers, and the ranks of their true values in one posterior."""
    random = np.random.default_rng(seed)
    true = {name: random.normal(*prior) for name, prior in PRIORS.items()}
    start = random.normal(START, START_SD)
    steps = jm.FixedSteps(per_save=16)
    sol = jm.simulate(PENDULUM, start[:1], start[1:], TS, true, steps=steps)
    observed = np.asarray(sol.q) + random.normal(0.0, NOISE, (TS.size, 1))
    recording = jm.Recording(
        TS, observed, START[:1], START[1:], weights=1 / NOISE,
        start_sd=(np.array(START_SD[:1]), np.array(START_SD[1:])),
    )  # fmt: skip
    guess = {name: mean for name, (mean, _) in PRIORS.items()}
    fit = jm.fit(PENDULUM, recording, guess, prior=PRIORS, steps=jm.FixedSteps(per_save=4))
    drawn = posterior(fit, chains=CHAINS, draws=25, warmup=200, seed=seed)
    parameters = np.array([true[name] for name in fit.names])
    by_name = (drawn.samples[:, -1] < parameters).sum(0)
    of_start = (drawn.unknowns[:, -1, parameters.size :] < start - START).sum(0)
    return (*fit.names, "angle at 0", "rate at 0"), np.concatenate([by_name, of_start])


def uniformity(ranks: np.ndarray) -> float:
    """The p-value of uniform ranks (N,) on 0 ... CHAINS, by chi-square in BINS bins."""
    counts = np.bincount(ranks * BINS // (CHAINS + 1), minlength=BINS)
    return float(chisquare(counts).pvalue)


def draw_picture(names: tuple[str, ...], ranks: np.ndarray, file: Path) -> None:
    """Draw the ranks of each number, with the band that holds 99 % of uniform counts."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(names), figsize=(3 * len(names), 2.6), layout="constrained")
    low, high = binom.ppf([0.005, 0.995], len(ranks), 1 / BINS)
    edges = np.linspace(0, CHAINS + 1, BINS + 1)
    for axis, name, column in zip(axes, names, ranks.T, strict=True):
        axis.hist(column, edges, color="C0", alpha=0.7)
        axis.axhspan(low, high, color="0.5", alpha=0.25)
        axis.axhline(len(ranks) / BINS, color="0.3", linewidth=0.8)
        axis.set(title=name, xlabel=f"rank among {CHAINS} draws")
    axes[0].set_ylabel("repeats")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> int:
    """Print the table, and fail if the ranks of a number are not uniform."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(prog="python -m experiments.calibration")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    results = [ranks_of(seed) for seed in range(options.repeats)]
    names, ranks = results[0][0], np.stack([ranks for _, ranks in results])
    p_values = [uniformity(column) for column in ranks.T]
    print(f"{options.repeats} repeats, ranks of 0 to {CHAINS}, uniform: mean {CHAINS / 2}")
    print(f"{'number':<18}{'mean rank':>10}{'p':>8}")
    for name, column, p in zip(names, ranks.T, p_values, strict=True):
        print(f"{name:<18}{column.mean():>10.1f}{p:>8.3f}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        table = {"names": names, "ranks": ranks.tolist(), "p": p_values}
        (options.out / "ranks.json").write_text(json.dumps(table) + "\n", encoding="utf-8")
        draw_picture(names, ranks, options.out / "ranks.png")
    return int(min(p_values) < 1e-3 / len(names))


if __name__ == "__main__":
    sys.exit(main())
