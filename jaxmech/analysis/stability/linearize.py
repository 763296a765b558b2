"""`linearize`: the equations of small deviations from an equilibrium or a steady motion."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.analysis.stability.balance import (
    Freedom,
    freedom_at,
    require_consistent,
    require_regular,
)
from jaxmech.analysis.stability.channels import (
    Channels,
    Named,
    input_columns,
    named_inputs,
    named_outputs,
    output_rows,
)
from jaxmech.analysis.stability.linearization import Linearization, StateSpace, is_negligible
from jaxmech.analysis.stability.reduction import (
    AtRest,
    Derivatives,
    Forced,
    at_rest,
    derivatives,
    forced,
    full_equations,
    reduced_equations,
    unsteadiness,
)
from jaxmech.analysis.states import State, checked_in_rates, require_smooth
from jaxmech.compiler import native_call, native_program
from jaxmech.system import Params, Subject, System
from jaxmech.utils.checks import is_known
from jaxmech.utils.jit_cache import is_inside_a_program, jit_of

_known = native_program("system")
_at_rest, _derivatives = _known(at_rest), _known(derivatives)
NOTHING: tuple[Named, Named] = ((), ())  # neither inputs nor outputs


def linearize(
    system: Subject,
    q: Any,
    v: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    inputs: Channels = None,
    outputs: Channels = None,
    steady: bool = True,
    W: Any = None,
    freedom: Freedom | None = None,
) -> Linearization:
    """The linear equations of small deviations from an equilibrium or a steady motion.

    Exact derivatives, with the geometric stiffness of the multipliers, are reduced to independent
    coordinates by orthonormal bases of the constraints' null spaces at the levels of position
    and of velocity, whose dimensions differ where a constraint is nonholonomic (formulas in
    `jaxmech.analysis.stability.reduction`). Redundant constraints and a singular M are supported.

    A steady motion whose rates are not those of cyclic coordinates alone (a wheel whose attitude is
    a quaternion, a coin on a circle) follows a symmetry of the system with the velocity field
    c + W q. Pass its `W`; then deviations are measured in the comoving frame.

    Pure: under `jit` and `vmap` nothing is checked. The ranks of the constraints are counted at
    members of the batch, under `jit` at generic arguments: pass `freedom` there if redundancy
    depends on the values of the parameters. Where ranks differ from those expected, `regular` is
    false and the matrices are NaN.

    To linearize at every saved time of a trajectory, use
    `jax.vmap(lambda q, v, t: linearize(system, q, v, params, t=t, steady=False))(sol.q, sol.v,
    sol.ts)`; the bases differ from time to time, and `deviation` turns (x, u) into dq and dv.

    Args:
        system: the system, with n coordinates.
        q: coordinates that satisfy the constraints, shape (n,).
        v: velocities that satisfy them, shape (n,).
        params: the parameters that the functions of the system expect.
        t: time [s].
        inputs: names of coordinates (for a generalized force on each, in N or N m) or of
            parameters; or a mapping from your own names to such names or to functions
            f(q, v, t, params), the generalized force (n,) per unit of the input.
        outputs: names of coordinates, or a mapping from your own names to functions of
            (q, v, t, params), each a scalar.
        steady: whether to refuse a state that is not steady. If false, the equations describe
            deviations from any motion at this moment, in bases at rest.
        W: derivative of the velocity field of the symmetry that the motion follows, shape (n, n),
            such as that of a turn about an axis; by default zero.
        freedom: the numbers of positions, velocities and accelerations that the constraints leave
            free; the last is less than the second with `Acceleration` constraints alone.

    Raises:
        TypeError: if `system` is not a `System`, or an input or output is neither name nor
            function.
        ValueError: if a shape is wrong, a value not finite, a name unknown, the state violates a
            constraint, is singular or is not steady, or an input moves a constraint.

    Example:
        >>> from jaxmech import models
        >>> model = models.double_pendulum()
        >>> hanging = linearize(
        ...     model.system, [0.0, -1.0, 0.0, -2.0], [0.0] * 4, model.params,
        ...     inputs=["x2"], outputs={"tip": lambda q, v, t, p: q[2]},
        ... )
        >>> hanging.positions, hanging.velocities, hanging.space.B.shape
        (2, 2, (4, 1))
        >>> values = jnp.linalg.eigvals(hanging.space.A)
        >>> print(values.imag.max().round(4))  # sqrt((2 + sqrt(2)) g / l)
        5.7874
    """
    system, state = checked_in_rates(system, q, v, t, params)
    require_smooth(system)
    q, v, t, params = state
    channels = named_inputs(system, params, inputs), named_outputs(system, outputs)
    is_concrete = is_known(state)
    if is_concrete:
        require_consistent(system, state)
    freedom = freedom or freedom_at(system, state)
    if is_concrete:
        require_regular(system, state, freedom)
    W = jnp.zeros((system.n, system.n)) if W is None else jnp.asarray(W)
    if W.shape != (system.n, system.n):
        raise ValueError(f"Argument `W` must have shape {(system.n,) * 2}, but has {W.shape}.")
    lin = linearized(system, freedom, channels, state, W.astype(q.dtype))
    moving = zip(lin.inputs, lin.moved, strict=True) if is_concrete else ()
    if names := [name for name, x in moving if not is_negligible(x)]:
        raise ValueError(
            f"Argument `inputs` must leave the constraints as they are, but {', '.join(names)} "
            "moves one; take a force as input, or make the drive an `Acceleration` constraint."
        )
    if is_concrete and steady and not v.any() and not is_negligible(lin.full.change):
        raise ValueError(
            "Argument `system` must have linear equations with constant coefficients at `q`, but "
            f"they change with time, by {float(lin.full.change):.2g} of their size per second; "
            "if they are periodic differentiate a simulation of one period, or pass "
            "`steady=False` for this moment alone."
        )
    if is_concrete and steady and not is_negligible(lin.unsteadiness):
        raise ValueError(
            "Arguments `q` and `v` must be an equilibrium or a steady motion, but the forces that "
            f"are not balanced are {float(lin.unsteadiness):.2g} of those at play; find one by "
            "`equilibrium`, pass the `W` of the symmetry that it follows, or `steady=False` for "
            "deviations from any motion."
        )
    return lin


def linearized(
    system: System, freedom: Freedom, channels: tuple[Named, Named], state: State, W: Array
) -> Linearization:
    """The linear equations without any check, for named inputs and outputs.

    W (n, n) is the generator of the symmetry of the motion.
    """
    if not is_known((state, W)) or is_inside_a_program():
        return _as_one_program(system, freedom, channels, state, W)
    # The code of a single program grows with the cube of the number of coordinates.
    statics = _at_rest(system, state)
    motion = _forced(freedom, statics)
    slopes = _derivatives(system, state, motion.a, motion.multipliers)
    return _linear(system, freedom, channels, state, W, (statics, motion, slopes))


@jit_of("system", "freedom", "channels")
def _as_one_program(
    system: System, freedom: Freedom, channels: tuple[Named, Named], state: State, W: Array
) -> Linearization:
    def linearized_at(state: State, W: Array) -> Linearization:
        statics = at_rest(system, state)
        motion = forced(statics, freedom)
        slopes = derivatives(system, state, motion.a, motion.multipliers)
        return _assembled(system, freedom, channels, state, W, (statics, motion, slopes))

    return native_call(linearized_at, state, W)


@jit_of("freedom", is_frame=True, is_brief=True)
def _forced(freedom: Freedom, statics: AtRest) -> Forced:
    return forced(statics, freedom)


@jit_of("system", "freedom", "channels", is_frame=True, is_brief=True)
def _linear(
    system: System,
    freedom: Freedom,
    channels: tuple[Named, Named],
    state: State,
    W: Array,
    parts: Any,
) -> Linearization:
    return _assembled(system, freedom, channels, state, W, parts)


def _assembled(
    system: System, freedom: Freedom, channels: tuple[Named, Named], state: State, W: Array,
    parts: tuple[AtRest, Forced, Derivatives],
) -> Linearization:  # fmt: skip
    inputs, outputs = channels
    v = state[1]
    full = full_equations(system, state, *parts)
    small = reduced_equations(full, W, freedom)
    B, moved = input_columns(system, full, small, inputs, state)
    C, D = output_rows(small, outputs, inputs, state)
    zeros = jnp.zeros((small.Z.shape[1], len(inputs)), B.dtype)
    regular = small.regular & jnp.all(is_negligible(moved))
    nan = jnp.where(regular, 0.0, jnp.nan).astype(v.dtype)
    return Linearization(
        full=full,
        reduced=small,
        space=StateSpace(small.matrix() + nan, jnp.concatenate([zeros, B]) + nan, C + nan, D + nan),
        W=W,
        unsteadiness=unsteadiness(full, small, v, W),
        regular=regular,
        moved=moved,
        coordinates=tuple(system.coordinates),
        inputs=tuple(name for name, _ in inputs),
        outputs=tuple(name for name, _ in outputs),
    )
