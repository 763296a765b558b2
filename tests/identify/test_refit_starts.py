"""Starts of recordings, which are fitted by default."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Fit, Recording, Table, fit, read_table
from jaxmech.identify.data.velocity_estimates import rates, without_outliers
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


def test_outliers_are_moved_and_nothing_else() -> None:
    rng, ts = np.random.default_rng(1), np.linspace(0.0, 2.0, 201)
    clean = np.stack([np.sin(3 * ts), np.abs(np.sin(3 * ts))], axis=1)  # with corners too
    for noise in (0.0, 1e-2):
        samples = clean + noise * rng.normal(size=clean.shape)
        unchanged, moved = without_outliers(samples, ts)
        assert not moved.any()
        np.testing.assert_array_equal(unchanged, samples)
        wrong = samples.copy()
        places = [0, 60, 62, 200]
        wrong[places, 0] += [0.6, -0.4, 3.0, -0.9]
        cleaned, moved = without_outliers(wrong, ts)
        assert np.flatnonzero(moved[:, 0]).tolist() == places
        assert not moved[:, 1].any()
        np.testing.assert_allclose(cleaned, clean, atol=5 * noise + 1e-3)
    gaps = np.where(np.isin(np.arange(201), [5, 6, 90])[:, None], np.nan, samples)
    assert not without_outliers(gaps, ts)[1].any()
    assert not without_outliers(samples[:5], ts[:5])[1].any()


def test_samples_of_a_slow_sensor_are_the_neighbours_of_each_other() -> None:
    ts = np.linspace(0.0, 2.0, 401)
    seen = np.arange(401) % 20 == 0
    samples = np.where(seen, 1 + 4 * ts**2, np.nan)[:, None]
    np.testing.assert_allclose(rates(samples, ts)[:, 0], 8 * ts, atol=1e-8)
    samples[200] += 9.0
    cleaned, moved = without_outliers(samples, ts)
    assert np.flatnonzero(moved).tolist() == [200]
    np.testing.assert_allclose(cleaned[200], 1 + 4 * ts[200] ** 2)


def test_a_fit_does_not_begin_at_an_outlier(tmp_path: Any) -> None:
    ts = np.arange(101) / 50
    angle = 0.8 * np.cos(3 * ts) + 1e-3 * np.random.default_rng(2).normal(size=101)
    angle[0] = -2.0
    rows = np.stack([ts, angle], axis=1)
    np.savetxt(tmp_path / "a.csv", rows, delimiter=",", header="t,phi", comments="")
    table = Table(file=str(tmp_path / "a.csv"), observed=("phi",), time="t")
    (one,) = read_table(table).train
    np.testing.assert_allclose(one.q0[0], 0.8, atol=0.01)
    np.testing.assert_allclose(one.v0[0], 0.0, atol=0.5)
    assert one.observed[0, 0] == -2.0  # to be weighed by the loss
    assert "the first sample of phi is an outlier, and not the start" in " ".join(one.notes)
