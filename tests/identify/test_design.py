"""Designed experiments, and fits to recordings of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, System, simulate
from jaxmech.identify import AOptimal, DOptimal, Fit, Recording, design, fit

TRUTH = {"k": 20.0, "c": 1.0, "torque": 0.0, "rate": 4.0}
TS = np.arange(101) / 25
STEPS, NOISE = FixedSteps(2), 2e-3
BOUNDS = (np.array([-0.5, 0.0, 1.0]), np.array([0.5, 5.0, 8.0]))


def _energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v + p["k"] * jnp.cos(q[0])


def _force(q: Any, v: Any, t: Any, p: Any) -> Any:
    return p["torque"] * jnp.sin(p["rate"] * t) - p["c"] * v


DRIVEN = System(_energy, force=_force, coordinates=("angle",))


def _experiment(x: Any, p: Any) -> Any:
    return x[:1], jnp.zeros(1), {**p, "torque": x[1], "rate": x[2]}


def _fitted(x: np.ndarray, free: tuple[str, ...] = ("k", "c")) -> Fit:
    q0, v0, p = _experiment(x, TRUTH)
    clean = np.asarray(simulate(DRIVEN, q0, v0, TS, p, steps=STEPS).q)
    observed = clean + NOISE * np.random.default_rng(0).normal(size=clean.shape)
    one = Recording(TS, observed, q0, v0, 1 / NOISE)
    return fit(DRIVEN, one, {**p, "k": 19.0, "c": 1.1}, free=free, steps=STEPS)


@pytest.mark.slow
def test_a_designed_experiment_halves_the_largest_interval() -> None:
    swing = np.array([0.5, 0.0, 4.0])
    best = design(
        DRIVEN, _experiment, swing, TS, TRUTH, bounds=BOUNDS, noise=NOISE, free=["k", "c"],
        criterion=AOptimal(), steps=STEPS, points=16,
    )  # fmt: skip
    assert np.all((BOUNDS[0] <= best.x) & (best.x <= BOUNDS[1]))
    shares = []
    for x, errors in ((swing, best.before), (best.x, best.errors)):
        found = _fitted(x)
        assert found.names == best.names == ("c", "k")
        # what was predicted for the assumed values is what the fit has
        np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=0.05)
        width = np.diff(found.uncertainty.interval())[:, 0]
        shares.append((width / found.values).max())
    assert shares[1] < 0.5 * shares[0], shares
    assert "error, x0" in repr(best)


def test_the_release_of_a_spring() -> None:
    """The information is that of the closed form, and the largest amplitude has the most."""
    spring = System(lambda q, v, t, p: 0.5 * (v @ v - p["k"] * q @ q), coordinates=("x",))
    ts = np.linspace(0.0, 3.0, 31)
    best = design(
        spring, lambda x, p: (x, jnp.zeros(1), p), [0.3], ts, {"k": 4.0}, bounds=(0.1, 2.0),
        noise=0.01, steps=FixedSteps(10), points=4,
    )  # fmt: skip
    np.testing.assert_allclose(best.x, 2.0)
    w = 2.0
    by_k = -2.0 * ts * np.sin(w * ts) / (2 * w)  # of 2 cos(w t), w = sqrt(k)
    starts = np.stack([np.cos(w * ts), np.sin(w * ts) / w], axis=1)
    rest = by_k - starts @ np.linalg.lstsq(starts, by_k, rcond=None)[0]
    np.testing.assert_allclose(best.errors, 0.01 / np.linalg.norm(rest), rtol=1e-5)
    np.testing.assert_allclose(best.before / best.errors, 2.0 / 0.3, rtol=1e-6)
    np.testing.assert_allclose(best.information, 1 / best.errors[None] ** 2, rtol=1e-5)


@pytest.mark.slow
def test_what_a_fit_leaves_open_is_measured_next() -> None:
    """Of an inertia and a stiffness a free swing has the ratio; a drive has both."""
    system = System(
        lambda q, v, t, p: 0.5 * (p["I"] * v @ v - p["k"] * q @ q),
        force=lambda q, v, t, p: p["torque"] * jnp.sin(p["rate"] * t) - 0.1 * v,
        coordinates=("angle",),
    )
    truth = {"I": 0.1, "k": 2.0, "torque": 0.0, "rate": 3.0}
    free = ["I", "k"]
    clean = np.asarray(simulate(system, [0.5], [0.0], TS, truth, steps=STEPS).q)
    observed = clean + NOISE * np.random.default_rng(0).normal(size=clean.shape)
    one = Recording(TS, observed, [0.5], [0.0], 1 / NOISE)
    known = fit(system, one, {**truth, "k": 1.9}, free=free, steps=STEPS)
    best = design(
        system, _experiment, [0.5, 0.0, 3.0], TS, known.params, bounds=BOUNDS, noise=NOISE,
        free=free, known=known, criterion=DOptimal(), steps=STEPS, points=16,
    )  # fmt: skip
    assert best.x[1] > 1.0
    assert (best.errors < 0.2 * best.before).all()


def test_wrong_designs_are_refused() -> None:
    def refused(message: str, **change: Any) -> None:
        options = {"bounds": BOUNDS, "noise": NOISE, "free": ["k"], "points": 2, "steps": STEPS}
        x0 = change.pop("x0", [0.5, 0.0, 4.0])
        with pytest.raises(ValueError, match=message):
            design(DRIVEN, _experiment, x0, TS, TRUTH, **{**options, **change})

    refused("`x0` must have shape", x0=0.5)
    refused("`x0` must lie within", x0=[0.6, 0.0, 4.0])
    refused("`bounds` must hold finite ends", bounds=(0.0, np.inf))
    refused("`bounds` must hold", bounds=(0.0, 1.0, 2.0))
    refused("`points` must be a positive integer", points=0)
    refused(
        "`known` must be a fit of k, but is one of c, k", known=_fitted(np.array([0.5, 0.0, 4.0]))
    )
