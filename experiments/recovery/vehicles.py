r"""A cart that is driven and carries a pendulum, and a disc that rolls and turns.

        force -> [ cart ]__            the pole hangs from the cart: a bob of mass m on a massless
           c      o  o  \              rod of length l, friction c of the cart and d of the hinge
                         \ l
                          o m          disc: mass 1, radius R, upright, friction c of the rolling
                                       and d of the turning

The force on the cart is recorded. The cart-pole is simulated in two coordinates and fitted in three
with the rod as a constraint; the disc is simulated in its two spins (`kinematics`) and fitted with
rolling as a constraint of its four rates.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxmech as jm
from experiments.recovery.mechanisms import Case, Params, reduced

_HOLD = 0.05  # time for which the force stays the same [s]
_PUSH = 4.0  # standard deviation of the force [N]


def _cart_start(x: Array, rate: Array, p: Params) -> tuple[Array, Array]:
    def position(x: Array) -> Array:
        bob = p["l"] * jnp.stack([jnp.sin(x[1]), -jnp.cos(x[1])])
        return jnp.stack([x[0], x[0] + bob[0], bob[1]])

    return jax.jvp(position, (x,), (rate,))


def _cart_lagrangian(q: Array, v: Array, t: Array, p: Params) -> Array:
    return 0.5 * p["M"] * v[0] ** 2 + 0.5 * p["m"] * v[1:] @ v[1:] - p["m"] * p["g"] * q[2]


def _cart_forces(q: Array, v: Array, t: Array, p: Params) -> Array:
    """The recorded force and friction: a torque on the rod is a pair of forces across it."""
    arm, speed = q[1:] - jnp.stack([q[0], 0.0]), v[1:] - jnp.stack([v[0], 0.0])
    spin = (arm[0] * speed[1] - arm[1] * speed[0]) / (arm @ arm)
    across = jnp.stack([-arm[1], arm[0]]) / (arm @ arm)
    pair = -p["d"] * spin * across
    return jnp.stack([p["force"](t) - p["c"] * v[0] - pair[0], pair[0], pair[1]])


def _rod(q: Array, t: Array, p: Params) -> Array:
    return jnp.stack([(q[1] - q[0]) ** 2 + q[2] ** 2 - p["l"] ** 2])


def _cart_sensors(q: Array, v: Array, t: Array, p: Params) -> Array:
    return jnp.stack([q[0], jnp.arctan2(q[1] - q[0], -q[2])])


def _pushes(rng: np.random.Generator, ts: np.ndarray) -> jm.Signal:
    """A force on the cart that jumps at random, as a controller would hold it."""
    levels = _PUSH * rng.normal(size=round(ts[-1] / _HOLD) + 1)
    return jm.Signal(ts, levels[np.floor(ts / _HOLD + 1e-6).astype(int)], "hold")


def cart_pole() -> Case:
    """Masses, length and friction by the position of the cart, the angle and the force."""
    system = jm.System(
        _cart_lagrangian, [jm.Holonomic(_rod, name="rod")], _cart_forces,
        coordinates=("cart", "x", "y"),
    )  # fmt: skip
    return Case(
        "cart-pole",
        system,
        reduced(system, _cart_start, ("cart", "angle")),
        _cart_start,
        _cart_sensors,
        {"M": 1.0, "m": 0.3, "l": 0.5, "c": 0.4, "d": 0.01, "g": 9.81},
        ("M", "m", "l", "c", "d"),
        low=((-0.2, -1.0), (-0.5, -1.0)),
        high=((0.2, 1.0), (0.5, 1.0)),
        units=("m", "rad"),
        drive=_pushes,
    )


def _rolling(q: Array, p: Params) -> Array:
    """The rates for a unit of the spins of rolling and turning, (4, 2)."""
    along = p["R"] * jnp.stack([jnp.cos(q[3]), jnp.sin(q[3])])
    return jnp.zeros((4, 2)).at[:2, 0].set(along).at[2, 0].set(1.0).at[3, 1].set(1.0)


def _disc_lagrangian(q: Array, v: Array, t: Array, p: Params) -> Array:
    square = p["R"] ** 2
    return 0.5 * (v[:2] @ v[:2] + 0.5 * square * v[2] ** 2 + 0.25 * square * v[3] ** 2)


def _disc_friction(q: Array, v: Array, t: Array, p: Params) -> Array:
    return -jnp.stack([0.0, 0.0, p["c"], p["d"]]) * v


def _disc_start(x: Array, rate: Array, p: Params) -> tuple[Array, Array]:
    """The state with the spins that are the last two of the rates."""
    return x, _rolling(x, p) @ rate[-2:]


def _disc_coordinates(q: Array, v: Array, t: Array, p: Params) -> Array:
    return q


def rolling_disc() -> Case:
    """The radius and both frictions by the position, the angle of rolling and the heading."""
    names = ("x", "y", "roll", "heading")
    slip = jm.Nonholonomic(lambda q, v, t, p: v[:2] - (_rolling(q, p) @ v[2:])[:2], name="rolling")
    return Case(
        "rolling disc",
        jm.System(_disc_lagrangian, [slip], _disc_friction, coordinates=names),
        jm.System(
            _disc_lagrangian, force=_disc_friction, coordinates=names,
            velocities=("rolling", "turning"), kinematics=lambda q, t, p: _rolling(q, p),
        ),
        _disc_start,
        _disc_coordinates,
        {"R": 0.3, "c": 0.02, "d": 0.005},
        ("R", "c", "d"),
        low=((-0.5, -0.5, -1.0, -1.0), (3.0, 0.5)),
        high=((0.5, 0.5, 1.0, 1.0), (6.0, 2.0)),
        units=("m", "m", "rad", "rad"),
    )  # fmt: skip
