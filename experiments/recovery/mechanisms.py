r"""Mechanisms with friction: two in Cartesian coordinates and in minimal ones, and a pendulum.

            o A                        B ___________ C        crank AB of length a, coupler BC, b,
          l1 \                          /            \        rocker DC, c; A = (0, 0), D = (d, 0);
              o m1                     / a           c\       gravity along -y; viscous friction in
           l2 |                     A o               o D     the hinges A and D
              o m2

The recordings are simulated in minimal coordinates, without constraints, and fitted in Cartesian
ones, so that constraints, projection and multipliers are not common to both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxmech as jm
from jaxmech.parts import forces, ground, joints, planar_body

Params = Mapping[str, Any]
State = Callable[[Array, Array, Params], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class Case:
    """A mechanism whose parameters are to be recovered."""

    name: str
    system: jm.System  # in Cartesian coordinates, with constraints
    minimal: jm.System  # the same in the start variables, without constraints
    start: State  # the consistent state for start variables and rates
    observe: Callable[[Array, Array, Array, Params], Array]  # the sensors
    params: Params  # the true ones
    free: tuple[str, ...]  # the fitted parameters; the others are known
    low: tuple[tuple[float, ...], tuple[float, ...]]  # range of the start variables and rates
    high: tuple[tuple[float, ...], tuple[float, ...]]
    units: tuple[str, ...]  # of the sensors
    drive: Callable[[np.random.Generator, np.ndarray], jm.Signal] | None = None  # params["force"]


def reduced(system: jm.System, start: State, names: tuple[str, ...]) -> jm.System:
    """The system in terms of its start variables x: the same Lagrangian, forces by virtual work."""

    def lagrangian(x: Array, rate: Array, t: Array, p: Params) -> Array:
        return system.lagrangian(*start(x, rate, p), t, p)

    def force(x: Array, rate: Array, t: Array, p: Params) -> Array:
        q, v = start(x, rate, p)
        _, pull = jax.vjp(lambda x: start(x, rate, p)[0], x)
        return pull(system.force(q, v, t, p))[0]

    return jm.System(lagrangian, force=force, coordinates=names)


_MODEL = jm.models.double_pendulum()


def _rates(q: Array, v: Array, p: Params) -> tuple[Array, Array]:
    """The spins of both rods [rad/s]."""
    first, second = (q[:2], v[:2]), (q[2:] - q[:2], v[2:] - v[:2])
    spins = [
        (r[0] * w[1] - r[1] * w[0]) / p[l] ** 2
        for (r, w), l in ((first, "l1"), (second, "l2"))  # noqa: E741
    ]
    return spins[0], spins[1]


def _hinge_friction(q: Array, v: Array, t: Array, p: Params) -> Array:
    """Minus the gradient of Rayleigh's dissipation function with respect to the velocities."""

    def dissipation(v: Array) -> Array:
        first, second = _rates(q, v, p)
        return 0.5 * p["c1"] * first**2 + 0.5 * p["c2"] * (second - first) ** 2

    return -jax.grad(dissipation)(v)


def _pendulum_start(x: Array, rate: Array, p: Params) -> tuple[Array, Array]:
    given = {"theta1": x[0], "theta2": x[1], "omega1": rate[0], "omega2": rate[1]}
    return _MODEL.state(given, p)


def pendulum_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
    """The angles of both rods from the downward vertical [rad]."""
    rod = q[2:] - q[:2]
    return jnp.stack([jnp.arctan2(q[0], -q[1]), jnp.arctan2(rod[0], -rod[1])])


def double_pendulum() -> Case:
    """Two rods with friction in both hinges; m1 and g are known, the rest is relative to them."""
    system = jm.System(
        _MODEL.system.lagrangian,
        _MODEL.system.constraints,
        _hinge_friction,
        coordinates=_MODEL.system.coordinates,
    )
    return Case(
        "double pendulum",
        system,
        reduced(system, _pendulum_start, ("theta1", "theta2")),
        _pendulum_start,
        pendulum_angles,
        {"m1": 1.0, "m2": 0.6, "l1": 0.8, "l2": 0.5, "g": 9.81, "c1": 0.15, "c2": 0.05},
        ("m2", "l1", "l2", "c1", "c2"),
        low=((-1.2, -1.2), (-1.0, -1.0)),
        high=((1.2, 1.2), (1.0, 1.0)),
        units=("rad", "rad"),
    )


def pendulum() -> Case:
    """One rod with friction in its hinge; only its frequency and damping are fitted."""

    def lagrangian(q: Array, v: Array, t: Array, p: Params) -> Array:
        return 0.5 * v @ v + p["omega"] ** 2 * jnp.cos(q[0])

    def friction(q: Array, v: Array, t: Array, p: Params) -> Array:
        return -p["c"] * v

    def start(x: Array, rate: Array, p: Params) -> tuple[Array, Array]:
        return x, rate

    def angle(q: Array, v: Array, t: Array, p: Params) -> Array:
        return q

    system = jm.System(lagrangian, force=friction, coordinates=("theta",))
    truth, free = {"omega": 3.5, "c": 0.2}, ("omega", "c")
    low, high = ((0.6,), (-1.0,)), ((1.4,), (1.0,))
    return Case("pendulum", system, system, start, angle, truth, free, low, high, ("rad",))


def _joints(p: Params, x: Array) -> tuple[Array, Array]:
    """The joints B, and C above the diagonal BD, for the angle of the crank [rad]."""
    B = p["a"] * jnp.stack([jnp.cos(x[0]), jnp.sin(x[0])])
    diagonal = jnp.stack([p["d"] - B[0], -B[1]])
    square = diagonal @ diagonal
    along = (p["b"] ** 2 - p["c"] ** 2 + square) / (2 * square)
    across = jnp.sqrt(p["b"] ** 2 / square - along**2)
    return B, B + along * diagonal + across * jnp.stack([-diagonal[1], diagonal[0]])


def _four_bar_start(x: Array, rate: Array, p: Params) -> tuple[Array, Array]:
    def position(x: Array) -> Array:
        B, C = _joints(p, x)
        D = jnp.stack([jnp.asarray(p["d"], x.dtype), jnp.zeros_like(x[0])])
        rod, arm = C - B, C - D
        angles = [x[0], jnp.arctan2(rod[1], rod[0]), jnp.arctan2(arm[1], arm[0])]
        centres = [B / 2, (B + C) / 2, (C + D) / 2]
        links = zip(centres, angles, strict=True)
        return jnp.concatenate([jnp.append(centre, angle) for centre, angle in links])

    return jax.jvp(position, (x,), (rate,))


def encoders(q: Array, v: Array, t: Array, p: Params) -> Array:
    """The angles of crank and rocker [rad]."""
    return jnp.stack([q[2], q[8]])


def _loop(q: Array, t: Array, p: Params) -> Array:
    """The closure of the loop, redundant as the sum of the equations of the hinges."""
    x = p["a"] * jnp.cos(q[2]) + p["b"] * jnp.cos(q[5]) - p["c"] * jnp.cos(q[8]) - p["d"]
    y = p["a"] * jnp.sin(q[2]) + p["b"] * jnp.sin(q[5]) - p["c"] * jnp.sin(q[8])
    return jnp.stack([x, y])


def four_bar() -> Case:
    """Three rigid bodies in a closed loop, two equations redundant; the crank makes full turns."""
    links = {
        name: planar_body(name, mass=f"m_{name}", inertia=_Rod(f"m_{name}", length))
        for name, length in (("crank", "a"), ("coupler", "b"), ("rocker", "c"))
    }
    crank, coupler, rocker = links.values()
    mechanism = jm.parts.Mechanism(
        [crank, coupler, rocker],
        [
            joints.revolute("A", ground, (0, 0), crank, (_Half("a", -1), 0)),
            joints.revolute("B", crank, (_Half("a", 1), 0), coupler, (_Half("b", -1), 0)),
            joints.revolute("C", coupler, (_Half("b", 1), 0), rocker, (_Half("c", 1), 0)),
            joints.revolute("D", ground, ("d", 0), rocker, (_Half("c", -1), 0)),
            jm.Holonomic(_loop, name="loop"),
        ],
        [
            forces.gravity("g"),
            forces.torsion_damper("oil A", ground, crank, damping="c_A"),
            forces.torsion_damper("oil D", ground, rocker, damping="c_D"),
        ],
        _FOUR_BAR,
        coordinates="bodies",
    )
    return Case(
        "four-bar",
        mechanism.system,
        reduced(mechanism.system, _four_bar_start, ("angle",)),
        _four_bar_start,
        encoders,
        _FOUR_BAR,
        ("m_rocker", "b", "c", "c_A", "c_D"),
        low=((-3.0,), (-6.0,)),
        high=((3.0,), (6.0,)),
        units=("rad", "rad"),
    )


_FOUR_BAR = {
    "m_crank": 1.0, "m_coupler": 1.5, "m_rocker": 2.0, "a": 0.4, "b": 1.2, "c": 0.8, "d": 1.3,
    "g": 9.81, "c_A": 0.3, "c_D": 0.6,
}  # fmt: skip


@dataclass(frozen=True)
class _Half:
    """Half a length, on one side or the other."""

    length: str
    side: int

    def __call__(self, t: Array, p: Params) -> Array:
        return self.side * p[self.length] / 2


@dataclass(frozen=True)
class _Rod:
    """The moment of inertia of a uniform rod [kg m^2]."""

    mass: str
    length: str

    def __call__(self, t: Array, p: Params) -> Array:
        return p[self.mass] * p[self.length] ** 2 / 12
