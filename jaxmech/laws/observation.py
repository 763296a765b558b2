"""`Observation`: accelerations, multipliers and reactions by name, at one state or along a run."""

from itertools import accumulate

import equinox as eqx
from jaxtyping import Array, Float, Int

from jaxmech.laws.acceleration import motion_at
from jaxmech.laws.base import AbstractFormulation
from jaxmech.system import Params, System
from jaxmech.utils.trees import ByName


class Observation(eqx.Module):
    """Accelerations, multipliers and reactions at the saved times of a `Solution`.

    With quasi-velocities the accelerations are their rates, and the forces act on them.

    Attributes:
        qdd: accelerations, shape (T, n).
        multipliers: by constraint name, shape (T, k): lambda of minimum norm.
        reactions: by constraint name, A_k^T lambda_k, shape (T, n): the generalized force of that
            constraint on the system.
        constraint_force: the sum of the reactions, shape (T, n); unique even under redundancy.
        nonideal_force: the force that non-ideal constraints add, shape (T, n); zero for ideal ones.
        energy: v . dL/dv - L [J], shape (T,).
        residuals: by constraint name, shape (T, k): phi of a holonomic constraint, psi of a
            nonholonomic one, A qdd - b of one on accelerations.
        rank: number of independent constraint equations, shape (T,).
        loads: by joint name, for a `Mechanism`: force [N], shape (T, d), and torque [N m], shape
            (T,) in the plane and (T, 3) in space, of the first body on the second. The torque is
            about the joint's point on the second body; both are along the axes of the ground.
    """

    qdd: Float[Array, " *T n"]
    multipliers: dict[str, Float[Array, " *T _"]]
    reactions: dict[str, Float[Array, " *T n"]]
    constraint_force: Float[Array, " *T n"]
    nonideal_force: Float[Array, " *T n"]
    energy: Float[Array, " *T"]
    residuals: dict[str, Float[Array, " *T _"]]
    rank: Int[Array, " *T"]
    loads: dict[str, tuple[Float[Array, " *T _"], Float[Array, "..."]]]


def observed_at(
    system: System, formulation: AbstractFormulation, q: Array, v: Array, t: Array, params: Params
) -> Observation:
    """Observe accelerations, multipliers and reactions at one state, without checks."""
    q, v, t, params = system.arguments(q, v, t, params)
    eom = system.dynamics.at(q, v, t, params)
    motion = motion_at(system, formulation, q, v, t, params)
    # The force of friction that slides is that of its constraint, which is switched off, and what
    # sticks has limits.
    within = getattr(system.nonideal, "forces", None)
    forces = motion.multipliers
    if within:
        forces = within(system, eom, forces, (q, v, t, params))
    names = [constraint.name for constraint in system.constraints]
    ends = list(accumulate(system.dynamics.sizes(q, v, t, params)))
    rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    multipliers = ByName({
        name: forces[k] for name, k in zip(names, rows, strict=True)
    })  # fmt: skip
    loads = {}
    if system.loads is not None:
        speeds = system.dynamics.speeds(q, v, t, params)
        accelerations = system.dynamics.speed_rates(q, v, motion.qdd, t, params)
        loads = system.loads(q, speeds, accelerations, multipliers, t, params)
    return Observation(
        qdd=motion.qdd,
        multipliers=multipliers,
        reactions=ByName(
            {name: eom.A[k].T @ forces[k] for name, k in zip(names, rows, strict=True)}
        ),
        constraint_force=motion.constraint_force,
        nonideal_force=motion.nonideal_force,
        energy=system.dynamics.energy(q, v, t, params),
        residuals=ByName(
            {c.name: c.residual(q, v, motion.qdd, t, params) for c in system.constraints}
        ),
        rank=motion.rank,
        loads=ByName(loads),
    )
