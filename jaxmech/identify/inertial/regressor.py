"""The regressor: what each inertial parameter contributes to the forces of a motion.

The laws of Newton and Euler are linear in the mass m, the static moment S and the inertia I of a
body about its pivot, all along its axes:

    force     m a + alpha x S + w x (w x S)
    torque    S x a + I alpha + w x I w

with the spin w, the angular acceleration alpha, and the acceleration a of the pivot less that of
gravity, or of the part of it that no support carries (Atkeson, An and Hollerbach, "Estimation of
inertial parameters of manipulator loads and links", International Journal of Robotics Research 5,
1986). Their power in the directions in which the mechanism can move gives the rows of the regressor
Y: the forces of a motion are Y phi, with the inertial parameters phi. The accelerations of a free
motion depend on the same combinations of phi, or only on their ratios where no force is known.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.inertial.motions import RandomMotion
from jaxmech.identify.inertial.standard import StandardParameters
from jaxmech.parts import Gravity, Reader, in_space
from jaxmech.system import Params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.jit_cache import jit_of

# The matrices of inertia with one of the six entries, (6, 3, 3).
_ENTRIES = np.array([
    [[float({i, j} == {a, b} and (i == j) == (a == b)) for j in range(3)] for i in range(3)]
    for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
])  # fmt: skip


def regressor(
    standard: StandardParameters, motions: Sequence[RandomMotion], t: float, params: Params
) -> tuple[HostArray, HostArray]:
    """The rows of all motions, (r, s), in units of the sizes (s,) that the columns may have."""
    time = jnp.asarray(t, float)
    states = [jnp.stack([jnp.asarray(m[k]) for m in motions]) for k in range(3)]
    forces, lengths, weight = map(np.asarray, _forces_of_all(standard, *states, time, params))
    pairs = zip(motions, forces, strict=True)
    rows = np.concatenate([motion.directions.T @ force for motion, force in pairs])
    # what a unit of each may contribute in rotations of about 1 rad/s, and by weights
    length = float(lengths.max(initial=0.0)) or 1.0
    around = length + float(np.linalg.norm(weight))
    sizes = np.array([length * around, around, 1.0])[standard.powers]
    return rows / sizes, sizes


@jit_of("standard")
def _forces_of_all(
    standard: StandardParameters, q: Array, v: Array, a: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    """The forces of all motions, the extents of the pivots, and the acceleration of weights."""
    weight = _acceleration_of_weights(standard, t, params)

    def evaluate(q: Array, v: Array, a: Array) -> tuple[Array, Array]:
        return _forces(standard, weight, (q, v, a, t), params)

    return *jax.vmap(evaluate)(q, v, a), weight


def _forces(
    standard: StandardParameters,
    weight: Array,
    state: tuple[Array, Array, Array, Array],
    params: Params,
) -> tuple[Array, Array]:
    """The forces on the coordinates by unit parameters, (n, s), and the extent of the pivots."""
    q, v, a, t = state

    def twists(q: Array, v: Array, t: Array) -> Array:
        return jnp.stack([one.twist(x) for one, x in standard.moving(q, v, t, params)])

    now, rates = jax.jvp(twists, (q, v, t), (v, a, jnp.ones_like(t)))
    partial_velocities = jax.jacfwd(twists, 1)(q, v, t)  # (bodies, 2, 3, n)
    columns, extents = list[Array](), [jnp.zeros(())]
    for k, (heavy, moving) in enumerate(standard.moving(q, v, t, params)):
        axes = jnp.asarray(in_space(moving.frame.axes))
        felt = weight - standard.carried(heavy.body, params, t)
        spin, angular, acceleration = now[k, 1], rates[k, 1], rates[k, 0] - felt
        loads = _loads(*(x @ axes for x in (acceleration, spin, angular)))
        powers = jnp.einsum("ksi,sjn,ji->nk", loads, partial_velocities[k], axes)
        columns.append(powers[:, heavy.columns])
        extents.append(jnp.linalg.norm(moving.frame.point(np.array(heavy.pivot))))
    for one in standard.rotors:
        names = standard.kinematics.coordinates
        turning = np.array([[name == x for x in one.coordinates] for name in names])
        columns.append(jnp.where(turning, a[:, None], 0.0))
    return jnp.concatenate(columns, axis=1), jnp.max(jnp.stack(extents))


def _loads(acceleration: Array, spin: Array, angular: Array) -> Array:
    """Forces and torques about the pivot by unit parameters, in the body's axes, (10, 2, 3)."""
    unit = jnp.eye(3)
    by_static = jnp.cross(angular, unit) + jnp.cross(spin, jnp.cross(spin, unit))
    entries = jnp.asarray(_ENTRIES)
    by_inertia = entries @ angular + jnp.cross(spin, entries @ spin)
    forces = [jnp.zeros((6, 3)), by_static, acceleration[None]]
    torques = [by_inertia, jnp.cross(unit, acceleration), jnp.zeros((1, 3))]
    return jnp.stack([jnp.concatenate(forces), jnp.concatenate(torques)], axis=1)


def _acceleration_of_weights(standard: StandardParameters, t: Array, params: Params) -> Array:
    """The sum of the accelerations of gravity, (3,)."""
    size = standard.kinematics.bodies[0].dimension

    def slope(one: Gravity) -> Array:
        energy = [one.energy(x, Reader("gravity", t, params)) for x in np.eye(size)]
        return jnp.stack([jnp.asarray(x) for x in energy])

    down = sum((-slope(one) for one in standard.gravities), jnp.zeros(size))
    return jnp.asarray(in_space(jnp.asarray(down)))
