"""`linearize`: the equations of small deviations from an equilibrium or a steady motion.

Inputs and outputs have names. An input is a generalized force on a coordinate, a parameter, or a
force law per unit of the input. An output is a coordinate or any function of the state.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.analysis.deviations import (
    AtRest,
    Derivatives,
    Forced,
    Freedom,
    FullEquations,
    ReducedEquations,
    at_rest,
    balance,
    derivatives,
    forced,
    freedom_at,
    full_equations,
    reduced_equations,
    require_consistent,
    require_regular,
    row_order,
    unsteadiness,
)
from jaxmech.analysis.states import State, checked_in_rates
from jaxmech.compiler import native_call, native_program
from jaxmech.system import Params, Subject, System
from jaxmech.utils.checks import coordinate_indices, is_known, require_function, require_sequence
from jaxmech.utils.jit_cache import is_inside_a_program, jit_of
from jaxmech.utils.trees import number_names, numbers_of


class StateSpace(NamedTuple):
    """dz/dt = A z + B w, y = C z + D w with z = (x, u).

    The attribute `space` of a `Linearization`, the result of `linearize`.

    A tuple of four matrices, which `scipy.signal.StateSpace(*...)` and `control.ss(*...)` accept.

    Attributes:
        A: shape (j, j).
        B: shape (j, inputs).
        C: shape (outputs, j).
        D: shape (outputs, inputs).
    """

    A: Float[Array, " j j"]
    B: Float[Array, " j inputs"]
    C: Float[Array, " outputs j"]
    D: Float[Array, " outputs inputs"]


class Linearization(eqx.Module):
    """Linear equations of deviations; under `jax.vmap` every array gets a leading batch axis.

    Attributes:
        full: the equations in all coordinates: M da + C dv + K dq = A^T dlambda with the rows of
            the constraints, as `FullEquations`.
        reduced: the same in independent coordinates, dq = Z x, dv = T x + Y u, as
            `ReducedEquations`.
        space: the first-order system in the state z = (x, u), as a `StateSpace`.
        W: generator of the comoving frame, the rate at which it turns coordinates, shape (n, n);
            zero at rest and where only cyclic coordinates change.
        unsteadiness: distance of the motion from a steady one: the unbalanced force relative to the
            largest force at play.
        regular: whether the constraints have the ranks implied by the dimensions of x and u, and no
            input moves them; where not, the matrices are NaN.
        moved: violation of the constraints per unit of each input, shape (inputs,).
        coordinates: names of the coordinates.
        inputs: names of the inputs.
        outputs: names of the outputs.
    """

    full: FullEquations
    reduced: ReducedEquations
    space: StateSpace
    W: Float[Array, " n n"]
    unsteadiness: Float[Array, ""]
    regular: Bool[Array, ""]
    moved: Float[Array, " inputs"]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)

    @property
    def positions(self) -> int:
        return int(self.reduced.Z.shape[-1])

    @property
    def velocities(self) -> int:
        """The degrees of freedom of velocity, the dimension of u."""
        return int(self.reduced.Y.shape[-1])

    @property
    def rate(self) -> Array:
        """The rate [1/s] at which the forces at play move a unit of length, roughly, shape ().

        The stiffness has round-off of these forces even if none of them varies with q.
        """
        force, mass = jnp.max(self.full.forces, -1), jnp.max(jnp.abs(self.full.M), (-2, -1))
        return jax.lax.stop_gradient(jnp.sqrt(0.1 * force / jnp.where(mass > 0, mass, 1.0)))

    def deviation(self, x: Any) -> tuple[Array, Array]:
        """The deviations dq and dv, shapes (n,), of a state (x, u), shape (j,)."""
        positions, speeds = x[: self.positions], x[self.positions :]
        small = self.reduced
        return small.Z @ positions, small.T @ positions + small.Y @ speeds

    def __repr__(self) -> str:
        channels = f"inputs={self.inputs}, outputs={self.outputs}"
        return f"Linearization(coordinates={self.coordinates}, {channels})"


def is_negligible(share: Any) -> Any:
    """Whether a share, such as `unsteadiness`, is zero to within rounding errors."""
    return share <= float(jnp.finfo(share.dtype).eps) ** 0.375


Named = tuple[tuple[str, Any], ...]  # names with a function, a coordinate or a parameter each
Channels = Sequence[str] | Mapping[str, Any] | None


@dataclass(frozen=True)
class Parameter:
    """The index of a number among those of the parameters (`utils.trees.numbers_of`)."""

    index: int


def named_inputs(system: System, params: Params, inputs: Channels) -> Named:
    """The inputs as names, each with an index or a function."""
    numbers = number_names(params)

    def resolve(name: str) -> int | Parameter:
        is_coordinate, is_parameter = name in system.velocity_names, name in numbers
        if is_coordinate and is_parameter:
            raise ValueError(
                f"Argument `inputs` must have one meaning for each name, but {name!r} is a "
                "coordinate and a parameter; pass the force as a function of its own name."
            )
        if is_parameter:
            return Parameter(numbers.index(name))
        if is_coordinate:
            return system.velocity_names.index(name)
        raise ValueError(
            f"Argument `inputs` must hold names of coordinates (for a force on them) or of "
            f"parameters, but holds {name!r}; the coordinates are "
            f"{', '.join(system.velocity_names)}, the parameters {', '.join(numbers) or 'none'}."
        )

    return _named("inputs", inputs, resolve)


def named_outputs(system: System, outputs: Channels) -> Named:
    """The outputs as names, each with an index or a function."""
    hint = " For anything else pass {name: function(q, v, t, params)}."

    def resolve(name: str) -> int:
        names = system.value_names
        index = coordinate_indices("outputs", (name,), names, hint)[0]
        # Those of states follow the indices of all coordinates but their integrals.
        return index + (system.dynamics.mechanical if index >= system.n else 0)

    return _named("outputs", outputs, resolve)


def _named(argument: str, channels: Channels, resolve: Callable[[str], Any]) -> Named:
    require_sequence(argument, channels := () if channels is None else channels)
    if not isinstance(channels, Mapping):
        return tuple((name, resolve(name)) for name in channels)
    for name, channel in channels.items():
        if not isinstance(channel, str):
            require_function(f"{argument}[{name!r}]", channel)
    return tuple(
        (name, resolve(channel) if isinstance(channel, str) else channel)
        for name, channel in channels.items()
    )


def input_columns(
    system: System, full: FullEquations, small: ReducedEquations, inputs: Named, state: State
) -> tuple[Array, Array]:
    """du/dt per unit of every input, (l, j), and the motion of the constraints by inputs, (j,)."""
    q, v, t, params = state
    numbers, with_numbers = numbers_of(params)
    leaves = np.array([x.index for _, x in inputs if isinstance(x, Parameter)], int)

    def equations_at(x: Array) -> tuple[Array, Array, Array]:
        """The force, A a - b and the constraints for changes of the parameters among the inputs."""
        p = with_numbers(numbers.at[leaves].add(x))
        multipliers = full.multipliers[row_order(system, system.dynamics.sizes(*state))]
        balances = balance(system, q, v, t, p, full.a, multipliers)
        level = jnp.concatenate([system.dynamics.position_level(q, t, p), balances.speed])
        return -balances.force, balances.rows, level

    by_parameters: Iterator[tuple[Array, ...]] = iter(())
    if leaves.size:
        # By all parameters together: the equations are traced and compiled once, not for each.
        slopes = jax.jacfwd(equations_at)(jnp.zeros(leaves.size, q.dtype))
        by_parameters = zip(*(slope.T for slope in slopes), strict=True)

    def column(channel: Any) -> tuple[Array, Array, Array]:
        """The generalized force of an input, and its effect on A a - b and on the constraints."""
        if isinstance(channel, Parameter):
            force, shift, level = next(by_parameters)
            return force, shift, jnp.max(jnp.abs(level), initial=0.0)
        if isinstance(channel, int):
            force = jnp.zeros_like(q).at[channel].set(1.0)
        else:
            force = _shaped(channel(q, v, t, params), (system.n,), "inputs").astype(q.dtype)
        return force, jnp.zeros(full.A.shape[0], q.dtype), jnp.zeros((), q.dtype)

    if not inputs:
        return jnp.zeros((small.M.shape[0], 0), q.dtype), jnp.zeros((0,), q.dtype)
    columns = zip(*(column(channel) for _, channel in inputs), strict=True)
    forces, shifts, moved = (jnp.stack(x) for x in columns)
    return small.solve(small.Y.T @ forces.T, -shifts[:, full.A_v.shape[0] :].T), moved


def output_rows(
    small: ReducedEquations, outputs: Named, inputs: Named, state: State
) -> tuple[Array, Array]:
    """C and D of the outputs, one row each: (i, k + l) and (i, j)."""
    q, v, t, params = state
    numbers, with_numbers = numbers_of(params)
    rows = [jnp.zeros((0, small.Z.shape[1] + small.Y.shape[1]), q.dtype)]
    through = [jnp.zeros((0, len(inputs)), q.dtype)]
    for _, channel in outputs:

        def value(q: Array, v: Array, x: Array, channel: Any = channel) -> Array:
            if isinstance(channel, int):
                return q[channel] if channel < q.size else v[channel - q.size]
            return _shaped(channel(q, v, t, with_numbers(x)), (), "outputs").astype(q.dtype)

        g_q, g_v, g_x = jax.grad(value, (0, 1, 2))(q, v, numbers)
        rows.append(jnp.concatenate([g_q @ small.Z + g_v @ small.T, g_v @ small.Y])[None])
        slopes = [g_x[x.index] if isinstance(x, Parameter) else 0.0 for _, x in inputs]
        through.append(jnp.array([slopes], q.dtype))
    return jnp.concatenate(rows), jnp.concatenate(through)


def _shaped(value: Any, shape: tuple[int, ...], argument: str) -> Array:
    if np.shape(value) != shape:
        raise ValueError(
            f"Argument `{argument}` must hold functions that return shape {shape}, but one "
            f"returned {np.shape(value)}; give every number a name of its own."
        )
    return jnp.asarray(value)


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
    `jaxmech.analysis.deviations`). Redundant constraints and a singular M are supported.

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
    system.require_smooth()
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
    return _in_steps(_PROGRAMS, system, freedom, channels, state, W)


@jit_of("system", "freedom", "channels")
def _as_one_program(
    system: System, freedom: Freedom, channels: tuple[Named, Named], state: State, W: Array
) -> Linearization:
    steps = at_rest, forced, derivatives, _assembled
    return native_call(partial(_in_steps, steps, system, freedom, channels), state, W)


def _in_steps(
    steps: tuple[Callable[..., Any], ...], system: System, freedom: Freedom,
    channels: tuple[Named, Named], state: State, W: Array,
) -> Linearization:  # fmt: skip
    at_rest, forced, derivatives, assembled = steps
    statics = at_rest(system, state)
    motion = forced(statics, freedom)
    slopes = derivatives(system, state, motion.a, motion.multipliers)
    linearization: Linearization = assembled(
        system, freedom, channels, state, W, (statics, motion, slopes)
    )
    return linearization


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


_brief = {"is_frame": True, "is_brief": True}
_PROGRAMS = (
    native_program("system")(at_rest),
    jit_of("freedom", **_brief)(forced),
    native_program("system")(derivatives),
    jit_of("system", "freedom", "channels", **_brief)(_assembled),
)
