"""Designed experiments, and fits to recordings of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from jaxmech import FixedSteps, Signal, System, simulate
from jaxmech.identify import (
    AOptimal,
    COptimal,
    Design,
    Energy,
    Fit,
    Peak,
    Recording,
    design,
    fit,
)  # fmt: skip

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


def test_a_start_that_is_known() -> None:
    """Its information is not shared with the spring, and another release may be best."""
    spring = System(lambda q, v, t, p: 0.5 * (v @ v - p["k"] * q @ q), coordinates=("x",))
    ts = np.linspace(0.0, 3.0, 31)

    def known(**options: Any) -> Design:
        return design(
            spring, lambda x, p: (x, jnp.zeros(1), p), [0.3], ts, {"k": 4.0}, bounds=(0.1, 2.0),
            noise=0.01, steps=FixedSteps(10), points=4, **options,
        )  # fmt: skip

    by_k = -2.0 * ts * np.sin(2.0 * ts) / 4.0
    best = known(initial_states="fixed")
    np.testing.assert_allclose(best.errors, 0.01 / np.linalg.norm(by_k), rtol=1e-5)


OSCILLATOR, SHAKER = 3.0, np.arange(7) / 3
SHAKEN = System(
    lambda q, v, t, p: 0.5 * (v @ v - OSCILLATOR**2 * q @ q),
    force=lambda q, v, t, p: p["gain"] * jnp.reshape(p["push"](t), 1),
    coordinates=("x",),
)


def _shaken(x: Any, p: Any) -> Any:
    """A push that holds each number of x until the next sample."""
    held = Signal(SHAKER, jnp.concatenate([x, x[-1:]]), "hold")
    return jnp.zeros(1), jnp.zeros(1), {**p, "push": held}


def _design_of_a_push(**options: Any) -> Design:
    return design(
        SHAKEN, _shaken, np.full(6, 0.1), SHAKER, {"gain": 2.0}, bounds=(-5.0, 5.0), noise=1e-3,
        points=4, steps=FixedSteps(16), **options,
    )  # fmt: skip


def _convolution() -> np.ndarray:
    """The positions (7,) by the held numbers (6,), less what initial states explain."""
    since = np.maximum(SHAKER[:, None] - SHAKER, 0.0)
    steps = 2.0 * (1 - np.cos(OSCILLATOR * since)) / OSCILLATOR**2
    starts = np.stack([np.cos(OSCILLATOR * SHAKER), np.sin(OSCILLATOR * SHAKER)], axis=1)
    H = steps[:, :-1] - steps[:, 1:]
    return H - starts @ np.linalg.lstsq(starts, H, rcond=None)[0]


@pytest.mark.slow
def test_an_input_of_given_energy_is_the_first_singular_vector() -> None:
    """The sensors are linear in gain times input: the information of it is E sigma_1^2 / dt."""
    budget = Energy("push", 4.0)
    best = _design_of_a_push(budget=budget)
    _, sigma, rows = np.linalg.svd(_convolution())
    dt = SHAKER[1]
    np.testing.assert_allclose(best.spent, [4.0], rtol=1e-8)
    np.testing.assert_allclose(dt * best.x @ best.x, 4.0, rtol=1e-8)
    np.testing.assert_allclose(abs(best.x @ rows[0]), np.sqrt(4.0 / dt), rtol=1e-6)
    np.testing.assert_allclose(best.errors, 2e-3 / (sigma[0] * np.sqrt(4.0 / dt)), rtol=1e-5)
    assert repr(best).endswith("  Energy of push: 4 of 4")


@pytest.mark.slow
def test_an_input_that_saturates_too() -> None:
    """Both budgets are met, and the information is below that of the energy alone."""
    best = _design_of_a_push(budget=[Energy("push", 4.0), Peak("push", 1.6)])
    np.testing.assert_allclose(best.spent, [4.0, 1.6], rtol=1e-6)
    assert (np.abs(best.x) < 1.6 * (1 + 1e-6)).all()
    H, dt = _convolution(), SHAKER[1]
    information = np.sum((H @ best.x) ** 2)
    np.testing.assert_allclose(best.errors, 2e-3 / np.sqrt(information), rtol=1e-5)
    # the same by a search that knows the convolution, from the input without a largest value
    _, sigma, rows = np.linalg.svd(H)
    energy = {"type": "ineq", "fun": lambda x: 4.0 - dt * x @ x}
    end = minimize(
        lambda x: -np.sum((H @ x) ** 2), np.clip(rows[0] * np.sqrt(4.0 / dt), -1.6, 1.6),
        bounds=[(-1.6, 1.6)] * 6, constraints=[energy], method="SLSQP",
    )  # fmt: skip
    np.testing.assert_allclose(information, -end.fun, rtol=1e-4)
    assert information < 0.99 * 4.0 / dt * sigma[0] ** 2


@pytest.mark.parametrize("interpolation", ["hold", "linear", "cubic"])
def test_the_energy_of_a_signal(interpolation: Any) -> None:
    """By a quadrature that knows nothing of samples, for a part of the signal that is late."""
    values = np.array([0.0, 1.0, -2.0, 0.5, 3.0])
    late = Signal(np.arange(5) / 2, values, interpolation, delay=0.3)
    ts, p = jnp.linspace(0.1, 1.9, 4), {"u": late}
    square = jax.jit(jax.vmap(lambda t: late(t) ** 2))
    fine = jnp.linspace(0.1, 1.9, 200_001)
    expected = float(square((fine[1:] + fine[:-1]) / 2).sum()) * 1.8 / 200_000
    np.testing.assert_allclose(Energy("u", 1.0).spent(ts, p), expected, rtol=1e-5)
    np.testing.assert_allclose(Energy("u", 2.0).shares(ts, p), expected / 2, rtol=1e-5)
    assert Peak("u", 1.0).spent(ts, p) >= 3.0


def test_budgets_of_other_inputs_are_functions() -> None:
    """A sine over whole periods: half the square of its amplitude times the time."""

    def torque(t: Any, p: Any) -> Any:
        return p["size"] * jnp.sin(2 * jnp.pi * t)

    ts, p = jnp.linspace(0.0, 2.0, 21), {"size": 3.0}
    np.testing.assert_allclose(Energy(torque, 1.0).spent(ts, p), 9.0, rtol=1e-9)
    np.testing.assert_allclose(Peak(torque, 1.0).spent(ts, p), 3.0, rtol=0.02)
    assert Energy(torque, 1.0).title == "Energy of torque"


@pytest.mark.slow
def test_steps_are_chosen_from_the_experiments() -> None:
    """Without a warning, which would be an error here, and so that they make no difference."""
    spring = System(lambda q, v, t, p: 0.5 * (v @ v - p["k"] * q @ q), coordinates=("x",))
    ts = np.linspace(0.0, 3.0, 7)
    best = design(
        spring, lambda x, p: (x, jnp.zeros(1), p), [0.3], ts, {"k": 25.0}, bounds=(0.1, 2.0),
        noise=0.01, points=4,
    )  # fmt: skip
    w = 5.0
    by_k = -2.0 * ts * np.sin(w * ts) / (2 * w)
    starts = np.stack([np.cos(w * ts), np.sin(w * ts) / w], axis=1)
    rest = by_k - starts @ np.linalg.lstsq(starts, by_k, rcond=None)[0]
    np.testing.assert_allclose(best.errors, 0.01 / np.linalg.norm(rest), rtol=1e-5)


@pytest.mark.slow
def test_what_a_fit_leaves_open_is_measured_next() -> None:
    """Of mass, friction and stiffness a free motion has ratios; a known push has all three."""
    system = System(
        lambda q, v, t, p: 0.5 * (p["m"] * v @ v - p["k"] * q @ q),
        force=lambda q, v, t, p: jnp.reshape(p["push"](t), 1) - p["c"] * v,
        coordinates=("x",),
    )
    truth, rng, ts = {"m": 0.5, "c": 0.3, "k": 8.0}, np.random.default_rng(0), np.arange(61) / 20

    def recording(start: float, push: Signal) -> Recording:
        sol = simulate(system, [start], [0.0], ts, {**truth, "push": push}, steps=STEPS)
        observed = sol.q + NOISE * rng.normal(size=sol.q.shape)
        return Recording(ts, observed, [start], [0.0], 1 / NOISE, inputs={"push": push})

    def pushed(x: Any, p: Any) -> Any:
        return jnp.zeros(1), jnp.zeros(1), {**p, "push": Signal(ts[::6], x)}

    free = recording(0.2, Signal(ts[::6], np.zeros(11)))
    guess = {name: 1.1 * value for name, value in truth.items()}
    known = fit(system, free, guess, steps=STEPS)
    assert known.identifiability.undetermined == ("c", "k", "m")
    criterion = COptimal.undetermined(known)
    np.testing.assert_allclose(np.abs(criterion.direction), 1 / np.sqrt(3), rtol=1e-3)
    best = design(
        system, pushed, np.zeros(11), ts, known.params, bounds=(-5.0, 5.0), noise=NOISE,
        known=known, criterion=criterion, budget=Energy("push", 2.0), points=4,
        steps=STEPS,
    )  # fmt: skip
    assert "not determined" in repr(best)  # without a push
    np.testing.assert_allclose(best.spent, [2.0], rtol=1e-6)
    both = fit(system, [free, recording(0.0, Signal(ts[::6], best.x))], guess, steps=STEPS)
    assert both.identifiability.undetermined == ()
    errors = both.uncertainty.standard_errors
    np.testing.assert_allclose(errors, best.errors, rtol=0.25)  # assumed: values 10 % off
    assert (np.abs(both.values - [truth[name] for name in both.names]) < 3 * errors).all()
    # a steady push of the same energy tells less of what was open
    steady = recording(0.0, Signal(ts[::6], np.full(11, np.sqrt(2.0 / 3.0))))
    plain = fit(system, [free, steady], guess, steps=STEPS)

    def variance(fit: Fit) -> float:
        c = np.array(criterion.direction)[0] / fit.values
        return float(c @ fit.uncertainty.covariance @ c)

    assert variance(both) < 0.95 * variance(plain)


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


def test_wrong_budgets_are_refused() -> None:
    with pytest.raises(ValueError, match="`limit` must be positive, but is 0"):
        Energy("push", 0.0)
    with pytest.raises(TypeError):
        _design_of_a_push(budget=4.0)
    with pytest.raises(
        ValueError, match=r"`budget` must name a `Signal` .* 'gain' is none; .* a fun"
    ):
        _design_of_a_push(budget=Energy("gain", 4.0))
    with pytest.raises(ValueError, match="`x0` must lie within the budget, but spends 200 % of it"):
        _design_of_a_push(budget=Energy("push", 0.01))
