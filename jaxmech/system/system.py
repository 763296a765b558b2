"""`System`: a Lagrangian, a force and named constraints, and the equations of motion at a state.

`with_params` finds the system of what a function is given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.linalg import matvec, null_basis
from jaxmech.system.constraints import (
    AbstractConstraint,
    Nonholonomic,
    checked_invariants,
    function_name,
    named_constraints,
)
from jaxmech.system.equations import Dynamics, EquationsOfMotion, SingularMass
from jaxmech.system.first_order import checked_states
from jaxmech.system.quasi_velocities import QuasiVelocities, Rates, checked_velocities
from jaxmech.system.unilateral import DryFriction, Unilateral, separated
from jaxmech.utils.checks import (
    VMAP,
    as_numbers,
    distinct_names,
    require_distinct,
    require_function,
    require_kind,
    with_shape,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import TRACED_AS
from jaxmech.utils.traces import first_equal
from jaxmech.utils.trees import as_dtype
from jaxmech.utils.units import (
    Named,
    Names,
    Units,
    columns,
    require_names_of_units,
    shown_coordinates,
    stated_units,
    unit_of,
)

Params = Any  # any pytree of arrays and numbers

_STATE = "q, v, t, params"
# The functions of a system beside those of its constraints, and their arguments.
_ARGUMENTS = {
    "lagrangian": _STATE,
    "force": _STATE,
    "nonideal": "q, v, multipliers, t, params",
    "loads": "q, v, qdd, multipliers, t, params",
    "rates": _STATE,
    "mass_and_force": _STATE,
    "quasi_mass_and_force": "q, u, t, params",
    "kinematics": "q, t, params",
}


@dataclass(frozen=True, repr=False)
class System:
    """A mechanical system: Lagrangian, constraints, forces, and the names of its coordinates.

    Parameters are always passed as an argument of the functions, never closed over, so that they
    can be swept and differentiated.

    Args:
        lagrangian: `lagrangian(q, v, t, params)`, a scalar [J]: kinetic minus potential energy.
        constraints: `Holonomic`, `Nonholonomic`, `Acceleration`, `Unilateral` and `DryFriction`
            objects, in any order; the last two kinds are the attribute `unilateral`.
        force: `force(q, v, t, params)`, shape (n,): the non-conservative generalized force.
        coordinates: the names of the n coordinates, or a mapping from names to units, such as
            `{"x": "m", "theta": "rad"}`, which tables, axes and files then show.
        nonideal: `nonideal(q, v, multipliers, t, params)`, shape (n,): C in M qdd = Q + A^T lambda
            + C, the part of the constraint force that does work, such as friction. The multipliers
            (m,) are in the order of the rows of A, and have minimum norm if constraints are
            redundant; for friction, C is -mu |lambda| times the direction of sliding. At rest that
            direction is undefined: with a smooth `jnp.tanh(v / eps)` in place of the sign, a
            sticking body creeps at a fraction of eps, which the step has to resolve.
        loads: `loads(q, v, qdd, multipliers, t, params)`, a dictionary of forces and torques by the
            names of joints, for `observe`, from the accelerations qdd (n,) and a dictionary of
            multipliers by the names of constraints. A `Mechanism` sets it.
        mass_and_force: `mass_and_force(q, v, t, params)`, M (n, n) and Q (n,) of the Lagrangian,
            without `force`, to be used instead of its derivatives, such as a recursion with fewer
            operations. They must agree with the Lagrangian, from which the energy is still
            computed; `structure` compares them.
        quasi_mass_and_force: the same for quasi-velocities, `quasi_mass_and_force(q, u, t,
            params)`: M (k, k) and Q (k,), to be used instead of projections of M and Q.
        states: names of states of first order, such as a current, a bristle deflection or a
            temperature, or a mapping from names to units. They are the last entries of v; the same
            entries of q are their integrals over time, which `coordinates` lists as "integral of
            ...". Forces and constraints do not change states.
        rates: `rates(q, v, t, params)`, shape (s,): the time derivatives of the s states. `force`,
            `nonideal`, M and Q then have n - s rows; the Lagrangian treats states as given
            functions of time.
        velocities: names of k quasi-velocities u, k <= n, such as the spins of a body, or a mapping
            from names to units. They take the place of v in `simulate`, its `Solution`, events and
            `equations`. The functions above still take the rates of the coordinates.
        kinematics: `kinematics(q, t, params)`, shape (n, k): T in dq/dt = T u, of full column rank.
        invariants: `Holonomic` equations that the motion satisfies by its kinematics, whatever the
            accelerations, such as the unit length of a quaternion. A `Projection` keeps them
            satisfied to round-off, but the law of motion does not contain them.
        unilateral: `Unilateral` and `DryFriction` objects, if they are not among `constraints`.
        units: the units as pairs of a name and a unit; filled in from the mappings above.
        sampling: the `ControllerSet` of a `controlled` system, which sets it.

    Raises:
        TypeError: if a function is not callable, a constraint is not of one of the four kinds, or
            a unit is not a string.
        ValueError: if there are no coordinates, a name is empty or used twice, states have no
            rates, or velocities no kinematics.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech import Holonomic
        >>> system = System(
        ...     lambda q, v, t, p: 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1],
        ...     [Holonomic(lambda q, t, p: (q @ q - p["l"] ** 2) / 2, name="rod")],
        ...     coordinates=("x", "y"),
        ... )
        >>> system
        System(coordinates=('x', 'y'), constraints=(Holonomic('rod'),))
        >>> eom = system.equations([0.6, 0.8], [4.0, -3.0], 0.0, {"m": 2.0, "g": 9.81, "l": 1.0})
        >>> print(eom.M.diagonal(), eom.Q, eom.A, eom.b)
        [2. 2.] [  0.   -19.62] [[0.6 0.8]] [-25.]

        A sledge that slides in the direction of its heading alone, by its forward speed:

        >>> def along(q, t, p):
        ...     return jnp.array([[jnp.cos(q[2]), 0.0], [jnp.sin(q[2]), 0.0], [0.0, 1.0]])
        >>> sledge = System(
        ...     lambda q, v, t, p: (v @ v) / 2,
        ...     coordinates=("x", "y", "heading"),
        ...     velocities=("forward", "turning"),
        ...     kinematics=along,
        ... )
        >>> eom = sledge.equations([0.0, 0.0, 0.3], [1.0, 2.0])
        >>> print(eom.M.diagonal(), eom.Q.round(9) + 0.0)
        [1. 1.] [0. 0.]
    """

    lagrangian: Callable[..., Array]
    constraints: Sequence[Any] = ()  # `AbstractConstraint` once inequalities are separated
    force: Callable[..., Array] | None = None
    coordinates: Names = field(kw_only=True)
    nonideal: Callable[..., Array] | None = field(default=None, kw_only=True)
    loads: Callable[..., Any] | None = field(default=None, kw_only=True)
    mass_and_force: Callable[..., tuple[Array, Array]] | None = field(default=None, kw_only=True)
    quasi_mass_and_force: Callable[..., tuple[Array, Array]] | None = field(
        default=None, kw_only=True
    )
    states: Names = field(default=(), kw_only=True)
    rates: Callable[..., Array] | None = field(default=None, kw_only=True)
    velocities: Names = field(default=(), kw_only=True)
    kinematics: Callable[..., Array] | None = field(default=None, kw_only=True)
    invariants: Sequence[AbstractConstraint] = field(default=(), kw_only=True)
    unilateral: Sequence[Unilateral | DryFriction] = field(default=(), kw_only=True)
    units: Units = field(default=(), kw_only=True, repr=False)
    sampling: Any = field(default=None, kw_only=True)
    # Set once per call by `generic.with_mass_rank`; `equations` passes it to the laws of motion.
    singular_mass: SingularMass = field(default=False, init=False)
    # The names of the parameters of a `Mechanism`; others are probably mistakes.
    declared: tuple[str, ...] = field(default=(), init=False, compare=False)

    def __post_init__(self) -> None:
        for name, arguments in _ARGUMENTS.items():
            fn = getattr(self, name)
            if fn is not None or name == "lagrangian":
                require_function(name, fn, arguments)
                object.__setattr__(self, name, first_equal(fn))
        units = stated_units(self.units, self.coordinates, self.states, self.velocities)
        names = distinct_names("coordinates", self.coordinates)
        if not names:
            raise ValueError("Argument `coordinates` must have at least one name, but is empty.")
        names, states = checked_states(names, self.states, self.rates)
        object.__setattr__(self, "coordinates", names)
        object.__setattr__(self, "states", states)
        velocities = checked_velocities(names, states, self.velocities, self.kinematics)
        if self.quasi_mass_and_force is not None and not velocities:
            raise ValueError(
                "Argument `quasi_mass_and_force` must come with `velocities` and `kinematics`, "
                "which are missing; in the rates of coordinates it is `mass_and_force`."
            )
        object.__setattr__(self, "velocities", velocities)
        require_names_of_units(units, (*names, *states, *velocities))
        object.__setattr__(self, "units", units)
        equations, unilateral = separated(self.constraints, self.unilateral)
        constraints = named_constraints(equations)
        all_names = [c.name for c in constraints] + [c.name for c in unilateral]
        require_distinct("constraints", tuple(all_names))
        object.__setattr__(self, "unilateral", unilateral)
        bound = tuple(constraint.with_kinematics(self._velocity_map) for constraint in constraints)
        object.__setattr__(self, "constraints", bound)
        invariants = checked_invariants(self.invariants, bound, bool(velocities))
        object.__setattr__(self, "invariants", invariants)

    def __repr__(self) -> str:
        forces = "".join(
            f", {name}={function_name(fn, 'given')}"
            for name, fn in (("force", self.force), ("nonideal", self.nonideal))
            if fn is not None
        )
        named = "".join(
            f", {name}={names}"
            for name in ("states", "velocities", "invariants", "unilateral")
            if (names := getattr(self, name))
        )
        coordinates = shown_coordinates(self.coordinates)
        parts = f"coordinates={coordinates}, constraints={self.constraints}{forces}{named}"
        return f"System({parts})"

    def __copy__(self) -> "System":
        return self

    def __deepcopy__(self, memo: Any) -> "System":
        return self

    @property
    def n(self) -> int:
        """The number of coordinates, states included."""
        return len(self.coordinates)

    @property
    def n_velocities(self) -> int:
        """The number of velocities, states included; it is n unless there are quasi-velocities."""
        return len(self.velocity_names)

    @cached_property
    def dynamics(self) -> Dynamics:
        """The equations of motion as functions of the state, the same form for all systems."""
        original = self.__dict__.get(TRACED_AS)
        if original is not None:
            dynamics = replace(original.dynamics, singular_mass=self.singular_mass)
            dynamics.__dict__[TRACED_AS] = original.dynamics
            return dynamics
        return Dynamics(
            self.lagrangian, self.force, self.nonideal, self.mass_and_force,
            self.quasi_mass_and_force, self.rates, self._velocity_map, self.n, self.n_velocities,
            tuple(self.states), tuple(self.constraints), self.singular_mass,
        )  # fmt: skip

    @cached_property
    def _velocity_map(self) -> Rates:
        if self.kinematics is None:
            return Rates()
        return QuasiVelocities(self.kinematics, self.n, self.n_velocities, len(self.states))

    @cached_property
    def plain(self) -> "System":
        """The same system with the rates of the coordinates for v; invariants are constraints."""
        if not self.velocities:
            return self
        constraints = (*self.constraints, *self.invariants)
        units = tuple(pair for pair in self.units if pair[0] in self.value_names)
        return replace(
            self, constraints=constraints, velocities=(), kinematics=None, invariants=(),
            quasi_mass_and_force=None, units=units,
        )  # fmt: skip

    def in_rates(self, params: Params) -> "System":
        """The same system, with the same motions, with the rates of its coordinates for v.

        The rates that quasi-velocities exclude are excluded by the invariants, which are
        constraints of that system, or, if these are fewer or more, by a `Nonholonomic` constraint
        "kinematics".
        """
        plain = self.plain
        if plain is self:
            return self

        def values(q: Array) -> list[Array]:
            return [c.value(q, jnp.zeros_like(q[0]), params) for c in self.invariants]

        sizes = [x.size for x in jax.eval_shape(values, jnp.zeros(self.n))]
        excluded = self.n - self.n_velocities
        if excluded == sum(sizes):
            return plain
        kinematics = Nonholonomic(_Excluded(self._velocity_map, excluded), "kinematics")
        return replace(plain, constraints=(*plain.constraints, kinematics))

    def function_values(self, q: Array, v: Array, t: Array, params: Params) -> Any:
        """The values of all functions at a state, to see which parameters they read."""
        dynamics = self.dynamics
        multipliers = jnp.zeros(sum(dynamics.sizes(q, v, t, params)), q.dtype)
        speeds = dynamics.speeds(q, v, t, params)
        values: list[Any] = [
            dynamics.lagrangian_value(q, speeds, t, params),
            dynamics.nonideal_force(q, v, multipliers, t, params),
        ]
        values += [c.residual(q, v, v, t, params) for c in self.constraints]
        values += [dynamics.state_rates(q, v, t, params), speeds]
        values += [c.value(q, t, params) for c in self.invariants]
        for inequality in self.unilateral:
            values += inequality.values(q, speeds, t, params)
        if self.sampling is not None:
            values.append(self.sampling(self.memory_at(t[None], params), q, v, t, params))
        return [*values, dynamics.applied_force(q, v, t, params)]

    def require_no_states(self, remedy: str) -> None:
        """Raise a ValueError unless there are no states of first order."""
        if self.states:
            raise ValueError(
                "Argument `system` must go with a system without states of first order, but this "
                f"one has {', '.join(self.states)}; {remedy}."
            )

    def require_no_gaps(self) -> None:
        """Raise a ValueError where it would have to be known which gaps are closed."""
        if self.unilateral:
            raise ValueError(
                "Argument `system` must have no unilateral constraints or dry friction here, but "
                f"has {self.unilateral[0].name!r}; only a run decides which gaps are closed and "
                "what sticks, so use `simulate` and `observe`, or `dataclasses.replace(system, "
                "unilateral=())` for the motion without both."
            )

    def require_smooth(self) -> None:
        """Raise a ValueError for gaps, dry friction and controllers, which only a run decides."""
        self.require_no_gaps()
        if self.sampling is not None:
            raise ValueError(
                f"Argument `system` must have no controllers here, but has {self.sampling}, whose "
                "outputs between samples would count as constants; take "
                "`dataclasses.replace(system, sampling=None)` with their outputs in `params`, or a "
                "continuous law as its `force`."
            )

    def with_functions(self, wrap: Callable[[Callable[..., Any], str], Any]) -> "System":
        """The system whose functions, those of constraints too, are `wrap(fn, role)`."""

        def constrained(constraint: AbstractConstraint) -> AbstractConstraint:
            return replace(constraint, fn=wrap(constraint.fn, f"constraint {constraint.name!r}"))

        functions = {name: getattr(self, name) for name in _ARGUMENTS}
        changes: dict[str, Any] = {
            name: wrap(fn, f"`{name}`") for name, fn in functions.items() if fn is not None
        }
        changes["constraints"] = tuple(map(constrained, self.constraints))
        changes["invariants"] = tuple(map(constrained, self.invariants))
        changes["unilateral"] = tuple(inequality.mapped(wrap) for inequality in self.unilateral)
        return replace(self, **changes)

    @property
    def value_names(self) -> tuple[str, ...]:
        """The names of all coordinates and, after them, of the states."""
        return (*self.coordinates, *self.states)

    def values(self, q: Array, v: Array) -> Array:
        """The numbers of the `value_names`: q (*T, n) with states in place of their integrals."""
        states = len(self.states)
        mechanical = q[..., : self.n - states]
        return jnp.concatenate([mechanical, v[..., -states:]], axis=-1) if states else q

    @property
    def velocity_names(self) -> tuple[str, ...]:
        """The names of the entries of v: those of coordinates, and of states."""
        names = self.velocities or self.coordinates[: self.n - len(self.states)]
        return (*names, *self.states)

    def unit(self, name: str) -> str:
        """The unit of a coordinate, a state, a velocity or a rate `x.rate`; empty if not stated."""
        return unit_of(self.units, name)

    def named(self, q: Any, v: Any = None) -> Named:
        """The coordinates, rates, velocities and states by the names that `Solution` has.

        For functions of `(q, v, t, params)`, such as those of events and `observe`: an entry of q
        or v is read by its name instead of its index.

        Args:
            q: coordinates, shape (..., n).
            v: velocities, shape (..., n) or (..., k); without them only coordinates are read.

        Returns:
            A mapping from names, such as "crank.angle" and "crank.angle.rate", to entries (...).

        Raises:
            KeyError: if a name that is read does not exist.
            ValueError: if q or v has another size.
        """
        sizes = {"q": self.n, "v": self.n_velocities}
        arrays = {name: jnp.asarray(x) for name, x in {"q": q, "v": v}.items() if x is not None}
        for name, x in arrays.items():
            if x.shape[-1:] != (sizes[name],):
                raise ValueError(
                    f"Argument `{name}` must have shape (..., {sizes[name]}), but has shape "
                    f"{x.shape}."
                )
        entries = columns(self.coordinates, self.velocity_names)
        known = {name: entry for name, entry in entries.items() if entry[0] in arrays}
        return Named(known, arrays)

    @with_standard_promotion
    def equations(self, q: Any, v: Any, t: Any = 0.0, params: Params = None) -> EquationsOfMotion:
        """Compute M, Q, A and b at a state (`equations` and `constraints`).

        Args:
            q: coordinates, shape (n,).
            v: velocities, shape (n,), or k quasi-velocities.
            t: time [s], scalar.
            params: the parameters that the functions of the system expect.

        Returns:
            `EquationsOfMotion` with M (n, n), Q (n,), A (m, n), b (m,); with k quasi-velocities M
            (k, k), Q (k,), A (m, k).

        Raises:
            ValueError: if an argument or the value of a function has the wrong shape, or an
                `Acceleration` constraint is not affine in the acceleration.
        """
        q, v, t, params = self.arguments(q, v, t, params)
        return self.dynamics.at(q, v, t, params)

    def with_outputs(self, params: Params, memory: Array | None = None) -> Params:
        """The parameters with what controllers give out, as in a memory or as before a run."""
        is_plain = params is None or isinstance(params, Mapping)
        if self.sampling is None or (memory is None and not is_plain):
            return params  # or those of a run, within spans or with switches
        return self.sampling.with_outputs(params, memory)

    def memory_at(self, ts: Array, params: Params, memory: Any = None) -> Float[Array, " c"]:
        """What controllers keep when a run begins, or continues with a memory."""
        if self.sampling is None:
            return jnp.zeros(0, ts.dtype)
        begun: Array = self.sampling.start(ts, params, memory)
        return begun

    def of_run(self, params: Params) -> "System":
        """The system for a run with these parameters, some of which may be traced."""
        if self.sampling is None or (sampling := self.sampling.of_run(params)) is self.sampling:
            return self
        return replace(self, sampling=sampling)

    def with_longest_run(self, duration: float) -> "System":
        """The system for runs of at most this duration [s], whose times may be traced."""
        if self.sampling is None:
            return self
        return replace(self, sampling=replace(self.sampling, longest_run=duration))

    def with_singular_mass(self, singular_mass: SingularMass) -> "System":
        """A copy of the system that states whether its mass matrix lacks full rank."""
        if singular_mass == self.singular_mass:
            return self
        return self._with("singular_mass", singular_mass)

    def with_declared(self, names: Iterable[str]) -> "System":
        """A copy of the system with the names of all parameters that it may be given."""
        return self._with("declared", tuple(names))

    def _with(self, name: str, value: Any) -> "System":
        """A copy with another value of a field that its methods do not compute with."""
        copy = object.__new__(System)
        copy.__dict__.update(self.__getstate__())
        copy.__dict__.update({name: value, TRACED_AS: self.__dict__.get(TRACED_AS, self)})
        return copy

    def arguments(
        self, q: Any, v: Any, t: Any, params: Params, names: tuple[str, str] = ("q", "v")
    ) -> tuple[Array, Array, Array, Params]:
        """Convert to (q, v, t, params) in the floating-point type of q and v, and check shapes."""
        each = f", and then one for each of {', '.join(self.states)}" if self.states else ""
        needs = f"one number per coordinate{each}", f"one number per coordinate{each}", ""
        if self.velocities:
            needs = needs[0], f"one number for each of {', '.join(self.velocity_names)}", ""
        shapes = (self.n,), (self.n_velocities,), ()
        quadruples = zip((*names, "t"), (q, v, t), shapes, needs, strict=True)
        q, v, t = (
            with_shape(
                f"Argument `{name}`", as_numbers(name, x, half=name == "t"), shape, VMAP, need
            )
            for name, x, shape, need in quadruples
        )
        floats = [x.dtype for x in (q, v) if jnp.issubdtype(x.dtype, jnp.floating)]
        dtype = jnp.result_type(*floats) if floats else jnp.result_type(float)
        params = as_dtype(self.with_outputs(params), dtype)
        return q.astype(dtype), v.astype(dtype), t.astype(dtype), params

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


# `Any` stands for `Model`, `Mechanism` and `Robot`, which are made of systems.
Subject = System | Any


def with_params(subject: Subject, params: Params) -> tuple[System, Params]:
    """The system of a model, a mechanism or a robot, or the system itself, and parameters.

    These are those of the subject where None are given.

    Raises:
        TypeError: if there is no system.
    """
    if isinstance(subject, System):
        return subject, params
    system = getattr(subject, "system", subject)
    require_kind("system", system, System, "System(...)")
    assert isinstance(system, System)
    return system, dict(subject.params) if params is None else params


@dataclass(frozen=True)
class _Excluded:
    """The parts of the rates that no velocities have: Z^T dq/dt with Z^T T = 0."""

    kinematics: Rates
    count: int

    def __call__(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        Z, _ = null_basis(self.kinematics.matrix(q, t, params).T, self.count)
        return matvec(Z.T, v)
