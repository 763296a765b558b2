"""Problems with synthetic recordings: a system with constraints, and its motion in first order.

All sides get the same recording with stated noise, the same bounds, and the same wrong start.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.fit_speed.problem import Case, Function


def _second_order(acceleration: Function) -> Function:
    def slope(s: Any, t: Any, p: Any) -> Any:
        q, v = jnp.split(s, 2)
        return jnp.concatenate([v, acceleration(q, v, t, p)])

    return slope


def _halves(s: Any, p: Any) -> Any:
    return tuple(jnp.split(s, 2))


def _coordinates(q: Any, v: Any, t: Any, p: Any) -> Any:
    return q


def relaxation() -> Case:
    """A mass on a spring and on a second one behind a dashpot."""
    system = jm.System(
        lambda q, v, t, p: (
            0.5 * v[0] ** 2 - 0.5 * p["k0"] * q[0] ** 2 - 0.5 * p["k1"] * (q[0] - q[1]) ** 2
        ),
        [jm.Nonholonomic(lambda q, v, t, p: v[1:] - (q[:1] - q[1:]) / p["tau"], "dashpot")],
        coordinates=("x", "z"),
    )

    def slope(s: Any, t: Any, p: Any) -> Any:
        x, z, v = s
        return jnp.stack([v, (x - z) / p["tau"], -p["k0"] * x - p["k1"] * (x - z)])

    def expand(s: Any, p: Any) -> Any:
        return s[:2], jnp.stack([s[2], (s[0] - s[1]) / p["tau"]])

    truth = {"k0": 4.0, "k1": 2.5, "tau": 0.6}
    return Case(
        "spring with relaxation", system, slope, expand, lambda q, v, t, p: q[:1], truth,
        (1.0, 0.0, 0.0), (0.002,), 10.0, 301, 2,
    )  # fmt: skip


def furuta() -> Case:
    """A pendulum on a turning arm."""

    def kinetic(q: Any, v: Any, p: Any) -> Any:
        turning = 1.0 + p["J"] * jnp.sin(q[1]) ** 2
        mixed = p["b"] * jnp.cos(q[1]) * v[0] * v[1]
        return 0.5 * turning * v[0] ** 2 + mixed + 0.5 * p["J"] * v[1] ** 2

    system = jm.System(
        lambda q, v, t, p: kinetic(q, v, p) + p["G"] * jnp.cos(q[1]),
        force=lambda q, v, t, p: -jnp.stack([p["c0"] * v[0], p["c1"] * v[1]]),
        coordinates=("arm", "pendulum"),
    )

    def acceleration(q: Any, v: Any, t: Any, p: Any) -> Any:
        sine, cosine = jnp.sin(q[1]), jnp.cos(q[1])
        a, b, c = 1.0 + p["J"] * sine**2, p["b"] * cosine, p["J"]
        f = (
            p["b"] * sine * v[1] ** 2 - 2 * p["J"] * sine * cosine * v[0] * v[1] - p["c0"] * v[0],
            p["J"] * sine * cosine * v[0] ** 2 - p["G"] * sine - p["c1"] * v[1],
        )
        return jnp.stack([c * f[0] - b * f[1], a * f[1] - b * f[0]]) / (a * c - b * b)

    truth = {"J": 0.5, "b": 0.4, "G": 6.0, "c0": 0.05, "c1": 0.03}
    return Case(
        "Furuta pendulum", system, _second_order(acceleration), _halves, _coordinates, truth,
        (0.1, 2.0, 1.0, 0.0), (0.005, 0.005), 5.0, 251, 4,
    )  # fmt: skip


def arm() -> Case:
    """Two joints under torques that are known as samples."""
    times = np.linspace(0.0, 4.0, 201)
    draw = np.random.default_rng(1)
    waves = draw.normal(size=(2, 5)), draw.uniform(1.0, 9.0, (2, 5))
    table = np.stack(
        [(a[:, None] * np.sin(w[:, None] * times)).sum(0) for a, w in zip(*waves, strict=True)]
    ) * np.array([[6.0], [2.0]])  # fmt: skip

    def torque(t: Any) -> Any:
        return jnp.stack([jnp.interp(t, jnp.asarray(times), jnp.asarray(row)) for row in table])

    def weights(q: Any, p: Any) -> Any:
        return jnp.stack([
            p["g1"] * jnp.sin(q[0]) + p["g2"] * jnp.sin(q[0] + q[1]), p["g2"] * jnp.sin(q[0] + q[1])
        ])  # fmt: skip

    def friction(v: Any, p: Any) -> Any:
        return jnp.stack([p["d1"] * v[0] + p["f1"] * jnp.tanh(v[0] / 0.1), p["d2"] * v[1]])

    system = jm.System(
        lambda q, v, t, p: (
            0.5 * (p["a"] + 2 * p["b"] * jnp.cos(q[1])) * v[0] ** 2
            + (p["c"] + p["b"] * jnp.cos(q[1])) * v[0] * v[1]
            + 0.5 * p["c"] * v[1] ** 2
            + p["g1"] * jnp.cos(q[0])
            + p["g2"] * jnp.cos(q[0] + q[1])
        ),
        force=lambda q, v, t, p: torque(t) - friction(v, p),
        coordinates=("shoulder", "elbow"),
    )

    def acceleration(q: Any, v: Any, t: Any, p: Any) -> Any:
        sine, cosine = jnp.sin(q[1]), jnp.cos(q[1])
        a, b, c = p["a"] + 2 * p["b"] * cosine, p["c"] + p["b"] * cosine, p["c"]
        turned = p["b"] * sine * jnp.stack([2 * v[0] * v[1] + v[1] ** 2, -(v[0] ** 2)])
        f = torque(t) - friction(v, p) - weights(q, p) + turned
        return jnp.stack([c * f[0] - b * f[1], a * f[1] - b * f[0]]) / (a * c - b * b)

    truth = {"a": 2.0, "b": 0.5, "c": 0.4, "g1": 12.0, "g2": 4.0, "d1": 0.8, "d2": 0.3, "f1": 0.5}
    return Case(
        "arm with sampled torques", system, _second_order(acceleration), _halves, _coordinates,
        truth, (0.3, -0.2, 0.0, 0.0), (0.002, 0.002), 4.0, 401, 2,
    )  # fmt: skip


def four_bar() -> Case:
    """A closed loop of a crank, a coupler and a rocker, with friction in the fixed pivots."""
    L1, L2, L3, base = 0.3, 0.8, 0.6, 0.9

    def loop(q: Any) -> Any:
        end = L1 * _direction(q[0]) + L2 * _direction(q[1]) - L3 * _direction(q[2])
        return end - jnp.array([base, 0.0])

    def middle(q: Any) -> Any:
        return L1 * _direction(q[0]) + 0.5 * L2 * _direction(q[1])

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        speed = L1 * v[0] * _normal(q[0]) + 0.5 * L2 * v[1] * _normal(q[1])
        kinetic = 0.5 * L1**2 * v[0] ** 2 / 3 + 0.5 * p["m2"] * (speed @ speed)
        kinetic += 0.5 * p["m2"] * L2**2 / 12 * v[1] ** 2 + 0.5 * p["m3"] * L3**2 / 3 * v[2] ** 2
        height = 0.5 * L1 * jnp.sin(q[0]) + p["m2"] * middle(q)[1]
        return kinetic - 9.81 * (height + 0.5 * p["m3"] * L3 * jnp.sin(q[2]))

    system = jm.System(
        lagrangian,
        [jm.Holonomic(lambda q, t, p: loop(q), "loop")],
        force=lambda q, v, t, p: -jnp.stack([p["c1"] * v[0], 0.0 * v[1], p["c3"] * v[2]]),
        coordinates=("crank", "coupler", "rocker"),
    )

    def angles(crank: Any) -> Any:
        # the coupler and the rocker meet on one side of the line between their pivots
        joint = L1 * _direction(crank)
        across = jnp.array([base, 0.0]) - joint
        distance = jnp.sqrt(across @ across)
        bearing = jnp.arctan2(across[1], across[0])
        inner = jnp.arccos((L2**2 + distance**2 - L3**2) / (2 * L2 * distance))
        coupler = bearing + inner
        elbow = joint + L2 * _direction(coupler) - jnp.array([base, 0.0])
        return jnp.stack([crank, coupler, jnp.arctan2(elbow[1], elbow[0])])

    def expand(s: Any, p: Any) -> Any:
        return jax.jvp(angles, (s[0],), (s[1],))

    def slope(s: Any, t: Any, p: Any) -> Any:
        def reduced(crank: Any, rate: Any) -> Any:
            return lagrangian(*jax.jvp(angles, (crank,), (rate,)), t, p)

        momentum = jax.grad(reduced, 1)
        mass, drift = jax.grad(momentum, 1)(*s), jax.grad(momentum, 0)(*s) * s[1]
        (_, v), by_crank = expand(s, p), jax.jacfwd(angles)(s[0])
        load = -p["c1"] * v[0] * by_crank[0] - p["c3"] * v[2] * by_crank[2]
        return jnp.stack([s[1], (jax.grad(reduced, 0)(*s) + load - drift) / mass])

    truth = {"m2": 1.5, "m3": 1.2, "c1": 0.05, "c3": 0.04}
    return Case(
        "four-bar with friction", system, slope, expand, lambda q, v, t, p: q[:1], truth,
        (1.0, 6.0), (0.002,), 2.0, 201, 4,
    )  # fmt: skip


def _direction(angle: Any) -> Any:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _normal(angle: Any) -> Any:
    return jnp.stack([-jnp.sin(angle), jnp.cos(angle)])


CASES: dict[str, Callable[[], Case]] = {
    made.__name__: made for made in (relaxation, furuta, arm, four_bar)
}
