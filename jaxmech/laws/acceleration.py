"""`acceleration`: accelerations, multipliers and constraint force at one state.

`Observation` has these and reactions by name, at one state or along a run. `multiplier_family` is
the family of all multipliers of a motion (Kalaba, Udwadia, Xu and Itiki 1995, equation (17)): with
C = A M^-1/2 and an arbitrary vector w3,

    lambda = (C^T)^+ C^+ (b - A a) + (I - C C^+) w3

The first part has minimum norm, the second is the redistribution of load between redundant
constraints. A^T lambda is the same for every w3, because C^T C C^+ = (C C^+ C)^T = C^T. So a single
multiplier of a redundant constraint is a convention, and only A^T lambda and the motion can be
measured.
"""

from functools import partial
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import native_call
from jaxmech.laws.base import AbstractFormulation
from jaxmech.laws.nonideal import solve_law
from jaxmech.laws.udwadia_kalaba import UdwadiaKalaba
from jaxmech.linalg import column_space_projector, matvec, max_abs
from jaxmech.system import EquationsOfMotion, Params, Subject, System, with_mass_rank, with_params
from jaxmech.utils.checks import require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import ByName


class Motion(eqx.Module):
    """The motion at one state: M qdd = Q + A^T lambda + C, A qdd = b.

    The result of `acceleration`. With quasi-velocities the accelerations are their rates, and
    forces act on them.

    Attributes:
        qdd: accelerations, shape (n,).
        multipliers: lambda of minimum norm, shape (m,), in the order of the rows of A; it depends
            on how constraints are scaled.
        constraint_force: A^T lambda, the force of the constraints on the system, shape (n,).
        rank: number of independent constraint equations.
        residual: largest |A qdd - b|; large where constraints contradict each other.
        definite: false where [M; A] lacks full column rank.
        nonideal_force: C, the force of non-ideal constraints, shape (n,); zero for ideal ones.
        converged: false where C depends on the multipliers, and no solution or more than one was
            found; C is then that of the ideal multipliers.
    """

    qdd: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    constraint_force: Float[Array, " n"]
    rank: Int[Array, ""]
    residual: Float[Array, ""]
    definite: Bool[Array, ""]
    nonideal_force: Float[Array, " n"]
    converged: Bool[Array, ""]


@with_standard_promotion
def acceleration(
    system: Subject,
    q: Any,
    v: Any,
    t: Any = 0.0,
    params: Any = None,
    *,
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> Motion:
    """Accelerations, multipliers and constraint force at one state.

    Args:
        system: the system, with n coordinates and m constraint equations.
        q: coordinates, shape (n,).
        v: velocities, shape (n,), or the k quasi-velocities.
        t: time [s].
        params: the parameters that the functions of the system expect.
        formulation: the law of motion.

    Returns:
        A `Motion`, whose multipliers are those of minimum norm in the family of Kalaba et al. 1995,
        equation (17).

    Raises:
        ValueError: if an argument or the result of a function of the system has the wrong shape.
        TypeError: if `system` is not a `System`, or `formulation` is not a law of motion.

    Example:
        >>> from jaxmech import models
        >>> model = models.pendulum()
        >>> motion = acceleration(model.system, [0.6, -0.8], [0.8, 0.6], 0.0, model.params)
        >>> print(motion.qdd.round(4), motion.rank)
        [-5.3088 -2.7316] 1
    """
    system, params = with_params(system, params)
    q, v, t, params = system.arguments(q, v, t, params)
    return _acceleration(system, formulation, q, v, t, params)


@jit_of("system", "formulation", is_frame=True)
def _acceleration(
    system: System, formulation: AbstractFormulation, q: Array, v: Array, t: Array, params: Params
) -> Motion:
    state = q, v, t, params
    return native_call(
        partial(motion_at, system, formulation), *state, differ=(True, True, False, False)
    )


def motion_at(
    system: System, formulation: AbstractFormulation, q: Array, v: Array, t: Array, params: Params
) -> Motion:
    """Compute the result of `acceleration` without checks of the arguments."""
    require_kind("formulation", formulation, AbstractFormulation, "UdwadiaKalaba()")
    system = with_mass_rank(system, q, v, t, params)
    eom = formulation.equations(system, q, v, t, params)
    law = solve_law(formulation, system, eom, (q, v, t, params))
    force = matvec(eom.A.T, law.multipliers)
    return Motion(
        qdd=law.qdd,
        # A law may return any lambda with the right A^T lambda. The one of minimum norm is its part
        # in the column space of A: Kalaba et al. 1995, equation (17), with w3 = 0.
        multipliers=matvec(column_space_projector(eom.A), law.multipliers),
        constraint_force=force,
        rank=law.rank,
        residual=max_abs(matvec(eom.A, law.qdd) - eom.b),
        definite=law.definite,
        nonideal_force=jnp.zeros_like(v) if law.nonideal_force is None else law.nonideal_force,
        converged=jnp.asarray(True) if law.converged is None else law.converged,
    )


def null_projector(eom: EquationsOfMotion) -> Float[Array, " m m"]:
    """I - C C^+ (m, m): the projector onto changes of multipliers that leave the motion unchanged.

    C = A M^-1/2 and A have the same column space, so C C^+ = A A^+ (Kalaba et al. 1995, equation
    (17)). It is zero when the constraints are independent.

    Args:
        eom: the equations at a state; only A is used.
    """
    return jnp.eye(eom.A.shape[0], dtype=eom.A.dtype) - column_space_projector(eom.A)


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


class MultiplierFamily(eqx.Module):
    """Every lambda with M qdd = Q + A^T lambda, for the qdd of the motion.

    The result of `multiplier_family`.

    Attributes:
        smallest: the member of minimum norm, shape (m,).
        projector: I - C C^+, shape (m, m), zero for independent constraints.
        dimension: number of undetermined directions, m minus the rank of A.
        constraint_force: A^T lambda, the same for all members, shape (n,).
    """

    smallest: Float[Array, " m"]
    projector: Float[Array, " m m"]
    dimension: Int[Array, ""]
    constraint_force: Float[Array, " n"]

    def member(self, w3: Any) -> Float[Array, " m"]:
        """The multipliers that belong to w3 (m,): the member nearest to it."""
        w3, shape = jnp.asarray(w3, self.smallest.dtype), self.smallest.shape
        if w3.shape != shape:
            raise ValueError(f"Argument `w3` must have shape {shape}, but has shape {w3.shape}.")
        return self.smallest + matvec(self.projector, w3)


def multiplier_family(
    system: Subject,
    q: Any,
    v: Any,
    t: Any = 0.0,
    params: Any = None,
    *,
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> MultiplierFamily:
    """The family of all multipliers at one state.

    Args:
        system: the system, with n coordinates and m constraint equations.
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.
        formulation: the law of motion that determines the minimum-norm multipliers.

    Raises:
        ValueError: if an argument or the result of a function of the system has the wrong shape.
        TypeError: if `system` is not a `System`.
    """
    system, params = with_params(system, params)
    motion = acceleration(system, q, v, t, params, formulation=formulation)
    projector = null_projector(system.equations(q, v, t, params))
    return MultiplierFamily(
        smallest=motion.multipliers,
        projector=projector,
        dimension=projector.shape[0] - motion.rank,
        constraint_force=motion.constraint_force,
    )
