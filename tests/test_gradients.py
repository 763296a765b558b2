"""Derivatives of trajectories and of consistent states against central differences."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxmech import Baumgarte, Event, FixedSteps, System, assemble, simulate
from jaxmech.integrate import ForwardMode
from tests.quick import quick
from tests.small import (
    DOUBLE,
    MASSLESS,
    MIXED,
    OSCILLATOR,
    PENDULUM,
    QUATERNION,
    REDUNDANT,
    SKATE,
    WIRE,
    Case,
)

TS = np.linspace(0.0, 0.8, 5)


def central(fn: Callable[[Any], Any], x: Any, h: float) -> np.ndarray:
    """The Jacobian (outputs, inputs) of fn at a vector, by fourth-order central differences."""
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
    """The initial time t is varied too: road, speed and servo depend on it."""
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


def massless_start(x: Any) -> tuple[Any, ...]:
    """M has rank 1 of 2."""
    q = jnp.stack([2 * x["q"] + x["d"], x["q"]])
    return q, jnp.stack([2 * x["v"], x["v"]]), TS, {name: x[name] for name in ("m", "k", "d")}


MASSLESS_X = {"m": 1.2, "k": 3.0, "d": 0.3, "q": 0.4, "v": -0.2}


def wire_start(x: Any) -> tuple[Any, ...]:
    """The initial time is varied too; the constraint depends on it."""
    t, r, w = x["from"], x["r"], x["params"]["w"]
    c, s = jnp.cos(w * t), jnp.sin(w * t)
    v = x["speed"] * jnp.stack([c, s]) + r * w * jnp.stack([-s, c])
    return r * jnp.stack([c, s]), v, t + x["for"] * TS, x["params"]


WIRE_X = {"from": 0.2, "for": 1.1, "r": 0.5, "speed": 0.3, "params": WIRE.params}


def skate_start(x: Any) -> tuple[Any, ...]:
    phi, speed, turn = x["state"][2:]
    v = jnp.stack([speed * jnp.cos(phi), speed * jnp.sin(phi), turn])
    return x["state"][:3], v, TS, x["params"]


SKATE_X = {"state": np.array([0.1, 0.2, 0.4, 1.0, 1.2]), "params": SKATE.params}

STARTS: dict[str, tuple[Case, Start, Any]] = {
    "pendulum": (PENDULUM, pendulum_start, PENDULUM_X),
    "redundant": (REDUNDANT, pendulum_start, PENDULUM_X),
    "massless": (MASSLESS, massless_start, MASSLESS_X),
    "wire": (WIRE, wire_start, WIRE_X),
    "skate": (SKATE, skate_start, SKATE_X),
    "quaternion": (QUATERNION, quaternion_start, QUATERNION_X),
    "mixed": (MIXED, mixed_start, MIXED_X),
}
SLOW = ("quaternion", "mixed")


def trajectory(name: str, **policies: Any) -> tuple[Callable[[Any], Any], np.ndarray]:
    """A function of a vector of inputs: all saved q and v, and the final energy; and the inputs."""
    case, start, inputs = STARTS[name]
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, inputs))

    def run(x: Any) -> Any:
        q, v, ts, params = start(unravel(x))
        sol = simulate(case.system, q, v, ts, params, steps=FixedSteps(3), **policies)
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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in STARTS
        if name != "pendulum"  # covered by `redundant`
    ],
)
def test_reverse_mode(name: str, expected: Any) -> None:
    """Gradients by parameters, initial state and times, for M = m I, redundant rows, singular M."""
    run, x = trajectory(name)
    assert_same_slope(jax.jit(jax.jacrev(run))(x), expected(name))


@pytest.mark.parametrize(
    "name", ["pendulum", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_forward_mode(name: str, expected: Any) -> None:
    run, x = trajectory(name, derivative=ForwardMode())
    assert_same_slope(jax.jit(jax.jacfwd(run))(x), expected(name))


@pytest.mark.slow
def test_baumgarte_instead_of_projection() -> None:
    run, x = trajectory("pendulum", projection=Baumgarte(alpha=5.0, beta=5.0))
    assert_same_slope(jax.jit(jax.jacrev(run))(x), central(run, x, h=1e-3))


@pytest.mark.slow
def test_off_the_constraints_too() -> None:
    """The derivative by each component of q0 and v0, also in directions that leave the circle."""

    def run(x: Any) -> Any:
        sol = simulate(PENDULUM.system, x[:2], x[2:], TS, PENDULUM.params, steps=FixedSteps(3))
        return jnp.concatenate([sol.q[-1], sol.v[-1]])

    x = np.concatenate(PENDULUM[2:])
    ours = jax.jit(jax.jacrev(run))(x)
    # within what counts as consistent, so the differences are small and less exact
    np.testing.assert_allclose(ours, central(run, x, h=3e-7), rtol=1e-6, atol=5e-8)


@pytest.mark.slow
def test_second_derivatives_by_forward_mode() -> None:
    """x = cos(sqrt(k) t), as integrated by the method."""

    def end(k: Any) -> Any:
        case = OSCILLATOR
        sol = simulate(
            case.system, *case[2:], TS, {"k": k}, derivative=ForwardMode(), steps=FixedSteps(1)
        )
        return sol.q[-1, 0]

    slope = jax.jit(jax.vmap(jax.grad(end)))
    a, b, c, d = slope(4.0 + 1e-3 * np.array([-2.0, -1.0, 1.0, 2.0]))
    second = jax.jit(jax.jacfwd(jax.grad(end)))(4.0)
    np.testing.assert_allclose(second, (8 * (c - b) - (d - a)) / (12 * 1e-3), rtol=1e-8)


SWING = np.array([9.81, 2.0, 1.3, 0.5])  # gravity, length, mass, rate


def swung(x: Any) -> Any:
    """A scalar of the states of a swing in the default mode, and of its energy."""
    g, l, m, rate = x  # noqa: E741
    q, v = l * np.array([0.6, -0.8]), l * rate * np.array([0.8, 0.6])
    sol = simulate(PENDULUM.system, q, v, TS[:3], {"g": g, "l": l, "m": m}, steps=FixedSteps(2))
    return sol.q[-1] @ np.array([1.0, 2.0]) + sol.v[1, 0] + 0.1 * sol.energy[-1]


def of_a_batch(fn: Any) -> Any:
    """The first of two members of a batch, which runs as lanes."""
    return lambda x: jax.vmap(fn)(jnp.stack([x, 1.1 * x]))[0]


@pytest.fixture(scope="module")
def curvature() -> np.ndarray:
    """Second derivatives by differences of first ones."""
    return central(jax.grad(swung), SWING, h=1e-3)


@pytest.mark.parametrize(
    "second",
    [
        jax.hessian,
        lambda fn: jax.jacfwd(jax.jacfwd(fn)),
        lambda fn: of_a_batch(jax.hessian(fn)),
        pytest.param(lambda fn: jax.jacrev(jax.grad(fn)), marks=pytest.mark.slow),
        pytest.param(lambda fn: jax.hessian(jax.checkpoint(fn)), marks=pytest.mark.slow),
    ],
    ids=[
        "hessian", "forward twice", "batch", "reverse twice", "checkpoint",
    ],
)  # fmt: skip
def test_second_derivatives_by_default(second: Any, curvature: Any) -> None:
    found = quick(second(swung))(SWING)
    np.testing.assert_allclose(found, curvature, rtol=1e-7, atol=1e-8)
    assert np.abs(curvature).max() > 1.0


def test_forward_mode_by_default() -> None:
    """Also where a trajectory has failed: NaN beside NaN."""
    slopes = quick(jax.jacfwd(swung))(SWING)
    np.testing.assert_allclose(slopes, quick(jax.grad(swung))(SWING), rtol=1e-10, atol=1e-13)

    def end(g: Any) -> Any:
        params = {**PENDULUM.params, "g": g}
        return simulate(
            PENDULUM.system, 1.01 * PENDULUM.q, PENDULUM.v, TS, params, steps=FixedSteps(1)
        ).q[-1]

    assert np.isnan(quick(jax.jacfwd(end))(9.81)).all()


def test_gradients_of_failed_trajectories_are_nan() -> None:
    """Their NaN reach the gradient by shared parameters only if they enter the result.

    An inconsistent initial state would have finite values and a zero gradient if not masked.
    """

    def ends(qs: Any, weights: Any, g: Any) -> Any:
        def end(q: Any) -> Any:
            return simulate(
                PENDULUM.system, q, PENDULUM.v, TS, {**PENDULUM.params, "g": g}, steps=FixedSteps(1)
            ).q[-1]

        found = jax.vmap(end)(qs).sum(1)
        return jnp.where(weights == 0, 0.0, weights * found).sum()

    slope = jax.jit(jax.grad(ends, argnums=2))
    bad = {"nan": PENDULUM.q * np.nan, "inconsistent": PENDULUM.q * 1.01, "good": PENDULUM.q}
    masked, heard = (
        {
            name: float(slope(np.stack([PENDULUM.q, q]), np.array(w), 9.81))
            for name, q in bad.items()
        }
        for w in ([1.0, 0.0], [1.0, 1.0])
    )
    assert np.isfinite(masked["good"])
    assert masked["nan"] == masked["inconsistent"] == masked["good"]
    assert heard["good"] == pytest.approx(2 * masked["good"])
    assert np.isnan(heard["nan"])
    assert np.isnan(heard["inconsistent"])


@pytest.mark.slow
@pytest.mark.parametrize("events", [(), Event(lambda q, v, t, p: v[0] + 0.4, name="fast")])
def test_saves_before_a_failure_have_their_gradients(events: Any) -> None:
    """The square root of this potential is NaN from x = 0 on, which is reached at 1.89 s."""
    well = System(lambda q, v, t, p: 0.5 * v @ v - p["k"] * jnp.sqrt(q[0]), coordinates=("x",))

    def early(k: Any) -> Any:
        sol = simulate(
            well, jnp.ones(1), jnp.zeros(1), np.linspace(0.0, 2.0, 11), {"k": k},
            steps=FixedSteps(7), events=events, throw=False,
        )  # fmt: skip
        return (sol.q[:6] ** 2).sum()

    reverse, forward = quick(jax.grad(early))(1.0), quick(jax.jacfwd(early))(1.0)
    np.testing.assert_allclose(reverse, forward, rtol=1e-12)
    slope = central(lambda k: early(k[0])[None], [1.0], 1e-3)[0, 0]
    np.testing.assert_allclose(reverse, slope, rtol=1e-8)


HEAVY = {**DOUBLE.params, "m1": 5.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [DOUBLE._replace(params=HEAVY), REDUNDANT], ids=["double", "redundant"]
)
def test_assembled_states(case: Case) -> None:
    """Derivatives by the guess, the parameters (also through the metric) and the time."""
    off = np.random.default_rng(0).uniform(-0.2, 0.2, (2, case.system.n))
    inputs = {"q": case.q + off[0], "v": case.v + off[1], "t": 0.3, "p": case.params}
    x, unravel = ravel_pytree(jax.tree.map(jnp.asarray, inputs))

    def run(x: Any) -> Any:
        given = unravel(x)
        return jnp.concatenate(
            assemble(case.system, given["q"], given["v"], given["t"], given["p"])
        )

    differences = central(run, x, h=1e-3)
    mode = jax.jacfwd if case is REDUNDANT else jax.jacrev
    np.testing.assert_allclose(jax.jit(mode(run))(x), differences, rtol=1e-6, atol=1e-8)
    assert np.abs(differences).max() > 0.1
    by_name = jax.vmap(unravel)(jnp.asarray(differences))["p"]
    if case is not REDUNDANT:
        assert np.abs(by_name["m1"]).max() > 1e-3
