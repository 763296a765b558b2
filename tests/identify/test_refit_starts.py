"""Starts of recordings, which are fitted by default."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Fit, Recording, Table, fit, read_table
from jaxmech.identify.recording import rates
from tests.identify.swings import BEGIN, FREE, SWING, TRUTH, noisy, swings

LOUD = 1e-2  # rad, ten times the noise of the other tests


def fitted(recordings: Any, **options: Any) -> Fit:
    return fit(SWING, recordings, BEGIN, **{"free": FREE, "steps": FixedSteps(1), **options})


def positions(folder: Path, one: Recording, rng: np.random.Generator) -> tuple[Recording, ...]:
    """A recording of times and noisy angles, read from a file with default settings."""
    angles = one.observed[:, 0] + rng.normal(0.0, LOUD, one.ts.shape)
    rows = [f"{t:.2f},{x:.6f}" for t, x in zip(one.ts, angles, strict=True)]
    (folder / "swing.csv").write_text("\n".join(["t,theta", *rows]))
    return read_table(Table(file="swing.csv", observed=("theta",), time="t"), folder).train


@pytest.mark.slow
def test_intervals_of_the_defaults_contain_the_truth(tmp_path: Path) -> None:
    """For a file with only noisy angles; with fixed starts they miss it."""
    (motion,), rng = swings((1.0,)), np.random.default_rng(0)
    files = [positions(tmp_path, motion, rng) for _ in range(12)]
    free, held = ([fitted(f, **o) for f in files] for o in ({}, {"initial_states": "fixed"}))

    def scores(fits: list[Fit]) -> np.ndarray:
        truth = [TRUTH["c"], TRUTH["l"]]
        return np.array([(one.values - truth) / one.uncertainty.standard_errors for one in fits])

    assert all(one.converged and not one.notes for one in free)
    assert np.mean(np.abs(scores(free)) < 2) > 0.8  # of 24
    assert np.abs(scores(free)).max() < 4
    missed = np.abs(scores(held)).max(axis=1) > 3
    assert missed.mean() > 0.8


def test_a_start_counts_once(tmp_path: Path) -> None:
    """An angle that is observed is no second measurement of the start; a rate is."""
    (tmp_path / "swing.csv").write_text("t,x,w\n0,1,0\n0.1,0.9,-1\n0.2,0.7,-2\n")
    table = Table(file="swing.csv", observed=("x",), time="t", noise_sd=0.1, start_sd=(0.1, 0.2))
    with_rates = replace(table, v0=("w",))
    (one,), (other,) = (read_table(t, tmp_path).train for t in (table, with_rates))
    assert one.start_sd is None
    assert [sd.tolist() for sd in other.start_sd] == [[np.inf], [0.2]]


@pytest.mark.slow
def test_unobservable_starts_do_not_widen_intervals() -> None:
    """An initial direction without effect must not remove information on the others."""
    import jax.numpy as jnp

    from jaxmech import System

    def free_too(q: Any, v: Any, t: Any, p: Any) -> Any:
        return SWING.lagrangian(q[:1], v[:1], t, p) + 0.5 * v[1] ** 2

    def friction(q: Any, v: Any, t: Any, p: Any) -> Any:
        return -p["c"] * v * jnp.array([1.0, 0.0])

    both = System(free_too, force=friction, coordinates=("theta", "x"))
    rng = np.random.default_rng(3)
    given = [noisy(one, rng) for one in swings()]
    wide = [replace(one, q0=np.append(one.q0, 0.0), v0=np.append(one.v0, 0.0)) for one in given]
    alone = fitted(given)
    found = fit(both, wide, BEGIN, free=FREE, observe=lambda q, v, t, p: q[:1], steps=FixedSteps(1))
    np.testing.assert_allclose(found.values, alone.values, rtol=1e-6)
    np.testing.assert_allclose(
        found.uncertainty.standard_errors, alone.uncertainty.standard_errors, rtol=1e-5
    )


def test_rates_are_slopes_of_parabolas() -> None:
    rng, ts = np.random.default_rng(0), np.linspace(0.0, 2.0, 201)
    clean = np.stack([np.sin(3 * ts), 1 + 4 * ts**2], axis=1)
    np.testing.assert_allclose(rates(clean, ts)[:, 1], 8 * ts, atol=1e-10)
    np.testing.assert_allclose(rates(clean, ts)[:, 0], 3 * np.cos(3 * ts), atol=2e-2)
    noise = rng.normal(0.0, 1e-2, (201, 2))
    off = rates(clean + noise, ts) - rates(clean, ts)
    differences = np.gradient(noise, ts, axis=0)
    assert np.all(off.std(axis=0) < 0.2 * differences.std(axis=0))
    gaps = clean.copy()
    gaps[10:20] = np.nan
    np.testing.assert_allclose(rates(gaps, ts)[:, 1], 8 * ts, atol=1e-8)
    assert rates(clean[:2], ts[:2]).shape == (2, 2)
    np.testing.assert_allclose(rates(clean[:2], ts[:2])[:, 1], 4 * ts[1])
