"""Derivatives of trajectories and of consistent states against central differences."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxmech import (
    RK4,
    Baumgarte,
    ForwardMode,
    ReverseMode,
    SimulationError,
    assemble,
    simulate,
)
from tests.small import DOUBLE, MIXED, PENDULUM, QUATERNION, REDUNDANT, Case

TS = np.linspace(0.0, 0.8, 5)


def central(fn: Callable[[Any], Any], x: Any, h: float) -> np.ndarray:
    """The Jacobian (outputs, inputs) of fn at a vector, by differences of fourth order."""
    x = np.asarray(x)
    shifts = h * np.eye(x.size)
    points = np.concatenate([x + k * shifts for k in (-2, -1, 1, 2)])
    values = np.asarray(jax.jit(jax.vmap(fn))(points))
    a, b, c, d = np.split(values, 4)
    return ((8 * (c - b) - (d - a)) / (12 * h)).T


def assert_same_slope(ours: Any, expected: Any) -> None:
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-8)


# For each case: what is varied, and the consistent state and times that follow from it.
Start = Callable[[Any], tuple[Any, Any, Any, Any]]  # x -> q, v, ts, params


def pendulum_start(x: Any) -> tuple[Any, ...]:
    """Masses, length and gravity, angle and rate, and when it starts and ends."""
    l, angle, rate = x["l"], x["angle"], x["rate"]  # noqa: E741
    q = l * jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
    v = l * rate * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    params = {"m": x["m"], "l": l, "g": x["g"], "links": 3, "on": True}
    return q, v, x["from"] + x["for"] * TS, params


PENDULUM_X = {
    "m": 1.3, "g": 9.81, "l": 2.0, "angle": 0.7, "rate": 0.5, "from": 0.1, "for": 1.0,
}  # fmt: skip


def quaternion_start(x: Any) -> tuple[Any, ...]:
    e, (a, b, c) = x["e"] / jnp.linalg.norm(x["e"]), x["w"] / 2
    turn = jnp.array([[0, -a, -b, -c], [a, 0, c, -b], [b, -c, 0, a], [c, b, -a, 0]])
    return e, turn @ e, TS, {"J": x["J"], "k": x["k"]}


QUATERNION_X = {
    "e": np.array([0.5, 0.6, -0.5, 0.4]),
    "w": np.array([0.3, -0.7, 0.4]),
    "J": np.array([1.0, 2.0, 3.5]),
    "k": 0.4,
}


def mixed_start(x: Any) -> tuple[Any, ...]:
    """Starts at a time t that is varied too: road, speed and servo depend on it."""
    t, (px, py, phi, wheel, turn, spin) = x["from"], x["start"]
    vx, vy = (1 + t) * jnp.cos(phi), (1 + t) * jnp.sin(phi)
    climb = 0.1 * jnp.cos(px) * py * vx + 0.1 * jnp.sin(px) * vy + 0.4 * t
    q = jnp.stack([px, py, 0.1 * jnp.sin(px) * py + 0.2 * t**2, phi, wheel])
    v = jnp.stack([vx, vy, climb, turn, spin])
    return q, v, t + x["for"] * TS, x["params"]


MIXED_X = {
    "start": np.array([0.3, -0.2, 0.5, 0.1, 0.4, -0.3]),
    "from": 0.2,
    "for": 0.9,
    "params": MIXED.params,
}

STARTS: dict[str, tuple[Case, Start, Any]] = {
    "pendulum": (PENDULUM, pendulum_start, PENDULUM_X),
    "redundant": (REDUNDANT, pendulum_start, PENDULUM_X),
    "quaternion": (QUATERNION, quaternion_start, QUATERNION_X),
    "mixed": (MIXED, mixed_start, MIXED_X),
}


def trajectory(name: str, **policies: Any) -> tuple[Callable[[Any], Any], np.ndarray]:
    """A vector of inputs to all saved q and v, and the energy at the end; and the inputs."""
    case, start, inputs = STARTS[name]
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, inputs))

    def run(x: Any) -> Any:
        q, v, ts, params = start(unravel(x))
        sol = simulate(case.system, q, v, ts, params, method=RK4(3), **policies)
        return jnp.concatenate([sol.q[2], sol.q[-1], sol.v[-1], sol.energy[-1:]])

    return run, np.asarray(x)


@pytest.fixture(scope="module")
def expected() -> Callable[[str], np.ndarray]:
    """Central differences of a trajectory, once for all modes."""
    known: dict[str, np.ndarray] = {}

    def slope(name: str) -> np.ndarray:
        if name not in known:
            known[name] = central(*trajectory(name), h=1e-3)
        return known[name]

    return slope


@pytest.mark.parametrize("name", STARTS)
def test_reverse_mode(name: str, expected: Any) -> None:
    """To parameters, start and times: M = m I, redundant rows, singular M, all kinds at once."""
    run, x = trajectory(name)
    assert_same_slope(jax.jit(jax.jacrev(run))(x), expected(name))


@pytest.mark.parametrize("name", ["pendulum", "quaternion", "mixed"])
def test_forward_mode(name: str, expected: Any) -> None:
    run, x = trajectory(name, derivative=ForwardMode())
    assert_same_slope(jax.jit(jax.jacfwd(run))(x), expected(name))


def test_reverse_mode_through_plain_operations(expected: Any) -> None:
    run, x = trajectory("pendulum", derivative=ForwardMode())
    assert_same_slope(jax.jit(jax.jacrev(run))(x), expected("pendulum"))


@pytest.mark.parametrize("projection", [None, Baumgarte(alpha=5.0, beta=5.0)], ids=["none", "fed"])
def test_other_ways_against_drift(projection: Any) -> None:
    run, x = trajectory("pendulum", projection=projection)
    assert_same_slope(jax.jit(jax.jacrev(run))(x), central(run, x, h=1e-3))


def test_off_the_constraints_too() -> None:
    """The slope to every component of q0 and v0 alone, also where it leaves the circle."""

    def run(x: Any) -> Any:
        sol = simulate(PENDULUM.system, x[:2], x[2:], TS, PENDULUM.params, method=RK4(3))
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    x = np.concatenate(PENDULUM[2:])
    ours = jax.jit(jax.jacrev(run))(x)
    # within what counts as consistent, so the differences are small and less exact
    np.testing.assert_allclose(ours, central(run, x, h=3e-7), rtol=1e-6, atol=5e-8)


def test_second_derivatives_by_forward_mode() -> None:
    def end(g: Any) -> Any:
        params = {**PENDULUM.params, "g": g}
        sol = simulate(PENDULUM.system, *PENDULUM[2:], TS, params, derivative=ForwardMode())
        return sol.q[-1, :1]

    second = jax.jit(jax.jacfwd(jax.jacfwd(end)))(9.81)
    slope = jax.jacfwd(end)
    first = central(lambda x: slope(x[0]), np.array([9.81]), h=1e-2)
    np.testing.assert_allclose(second, first[0], rtol=1e-6)


def test_forward_differentiation_of_reverse_mode_is_refused() -> None:
    def end(g: Any) -> Any:
        return simulate(
            PENDULUM.system, *PENDULUM[2:], TS, {**PENDULUM.params, "g": g}, derivative=ReverseMode()
        ).q

    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(end, (9.81,), (1.0,))


def test_a_failed_trajectory_without_a_say_has_no_slope() -> None:
    """Its NaN do not reach what is shared; asked for, they show."""

    def run(scale: Any, weight: Any) -> Any:
        q = jnp.stack([PENDULUM.q, PENDULUM.q * jnp.nan])
        sols = jax.vmap(
            lambda q: simulate(
                PENDULUM.system, q, PENDULUM.v, TS, {**PENDULUM.params, "g": scale}, throw=False
            )
        )(q)
        ends = jnp.where(sols.ok[:, None], sols.q[:, -1], 0.0)
        return ends.sum() + weight * sols.q[1, -1, 0]

    slope = jax.jit(jax.grad(run))
    alone = jax.jit(jax.grad(lambda g: simulate(
        PENDULUM.system, *PENDULUM[2:], TS, {**PENDULUM.params, "g": g}
    ).q[-1].sum()))  # fmt: skip
    masked = jax.jit(jax.grad(lambda g: run(g, 0.0)))(9.81)
    assert np.isnan(slope(9.81, 1.0))
    np.testing.assert_allclose(masked, alone(9.81), rtol=1e-14)


def test_an_eager_gradient_of_a_bad_start_raises_or_shows_it() -> None:
    def end(q: Any) -> Any:
        return simulate(PENDULUM.system, q, PENDULUM.v, TS, PENDULUM.params).q[-1].sum()

    with pytest.raises(SimulationError):
        end(PENDULUM.q * 1.01)
    assert np.isnan(jax.grad(end)(PENDULUM.q * 1.01)).all()


HEAVY = {**DOUBLE.params, "m1": 5.0}


@pytest.mark.parametrize("case", [DOUBLE._replace(params=HEAVY), REDUNDANT], ids=["double", "redundant"])
def test_assembled_states(case: Case) -> None:
    """To the guess, the parameters (through the metric too) and the time."""
    off = np.random.default_rng(0).uniform(-0.2, 0.2, (2, case.system.n))
    inputs = {"q": case.q + off[0], "v": case.v + off[1], "t": 0.3, "p": case.params}
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, inputs))

    def run(x: Any) -> Any:
        given = unravel(x)
        return jnp.concatenate(assemble(case.system, given["q"], given["v"], given["t"], given["p"]))

    slope = jax.jit(lambda x: (jax.jacrev(run)(x), jax.jacfwd(run)(x)))(x)
    differences = central(run, x, h=1e-3)
    for mode in slope:
        np.testing.assert_allclose(mode, differences, rtol=1e-6, atol=1e-8)
    assert np.abs(differences).max() > 0.1
    by_name = jax.vmap(unravel)(jnp.asarray(differences))["p"]
    if case is not REDUNDANT:
        assert np.abs(by_name["m1"]).max() > 1e-3
