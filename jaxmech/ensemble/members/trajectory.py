"""One trajectory of a study as a function of its draws: its stored and observed quantities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import native_call
from jaxmech.config import Subject
from jaxmech.ensemble.draws.sampler import Variable
from jaxmech.ensemble.members.observed import SERIES
from jaxmech.ensemble.members.quantities import (
    AUDIT,
    OF_EVENTS,
    VELOCITY,
    Dims,
    Quantity,
    event_values,
    memory_names,
    multipliers_name,
    multipliers_names,
    quantities_of,
    quantity_entries,
    study_events,
)
from jaxmech.ensemble.study import SECTIONS, Study
from jaxmech.integrate import EventSet
from jaxmech.linalg import matvec
from jaxmech.run import Solution, observe, simulate
from jaxmech.state import assemble
from jaxmech.status import Status, succeeded
from jaxmech.system import System, extents_at, levels_of, named_values
from jaxmech.utils.units import shown_coordinates

Tree = dict[str, dict[str, Any]]  # section, name -> value


def merged(shared: Tree, varying: Tree) -> Tree:
    """Merge all inputs of one member."""
    return {section: shared[section] | varying[section] for section in SECTIONS}


def first_of(varying: Tree, shared: Tree) -> Tree:
    """All inputs of the first member of some."""
    return merged(shared, jax.tree.map(lambda x: x[0], varying))


def params_of(subject: Subject, inputs: Tree) -> dict[str, Any]:
    """The parameters of one member, with the defaults of the model."""
    defaults = subject.model.params if subject.model else {}
    params = {**defaults, **inputs["parameters"]}
    return params | subject.inputs.of(params)


def inputs_of(
    variables: Iterable[Variable], dtype: np.dtype[Any], padding: int = 0
) -> tuple[Tree, Tree]:
    """Split draws into varying ones, padded with copies of the last member, and shared ones."""
    varying: Tree = {section: {} for section in SECTIONS}
    shared: Tree = {section: {} for section in SECTIONS}
    for variable in variables:
        values = variable.values
        if variable.varies and padding:
            values = np.concatenate([values, np.repeat(values[-1:], padding, axis=0)])
        tree = varying if variable.varies else shared
        values = values.astype(dtype) if values.dtype.kind == "f" else values
        tree[variable.section][variable.name] = values
    return varying, shared


_OBSERVED = {"qdd", "multipliers", "constraint_force"}  # series of `observe`
_DERIVED = {*_OBSERVED, "rates"}  # series that a `Solution` does not hold
_ROUND_OFF = 64  # units of round-off within which a state is on its constraints


def save_times(study: Study) -> np.ndarray:
    """The saved times [s], shape (saves,)."""
    return np.linspace(study.times.start, study.times.end, study.times.saves)


@dataclass(frozen=True, eq=False)
class StudyTrajectory:
    """One trajectory of a study as a function of its draws.

    A kernel computes blocks of them; store, statistics and workers know no more of a trajectory.
    """

    study: Study  # with functions in place of their names
    subject: Subject  # its system
    # names of the quantities that statistics are computed from
    wanted: frozenset[str] = frozenset()

    @property
    def system(self) -> System:
        """The mechanical system."""
        return self.subject.system

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating-point type of the computation."""
        return np.dtype(self.study.precision)

    def params(self, inputs: Tree) -> dict[str, Any]:
        """The parameters, with the defaults of the model."""
        return params_of(self.subject, inputs)

    @property
    def ts(self) -> np.ndarray:
        """The saved times [s]."""
        return save_times(self.study).astype(self.dtype)

    @property
    def may_skip_assembly(self) -> bool:
        """Whether states come from a model alone, which makes consistent ones."""
        overrides = self.study.coordinates or self.study.velocities
        return self.subject.model is not None and not overrides

    @cached_property
    def event_set(self) -> EventSet:
        """The events, as `simulate` has them."""
        return study_events(self.study, self.system)

    def start(self, inputs: Tree, assembled: bool) -> tuple[Array, Array, Array]:
        """The initial state, and whether the guess is on the constraints to round-off already."""
        # The state of the model, with the drawn values in place.
        system, model, params = self.system, self.subject.model, self.params(inputs)
        q, v = jnp.zeros(system.n, self.dtype), jnp.zeros(system.n_velocities, self.dtype)
        if model:
            q, v = (jnp.asarray(x, self.dtype) for x in model.state(inputs["start"], params))
        for name, value in inputs["coordinates"].items():
            q = q.at[system.coordinates.index(name)].set(value)
        for name, value in inputs["velocities"].items():
            v = v.at[system.velocity_names.index(name)].set(value)
        # With the constraints that are on at the start. A guess that is on them is its own nearest
        # state: for a batch, the search of `assemble` costs as much as thousands of steps.
        params = self.event_set.params(system.with_outputs(params), self.event_set.active())
        system, t = self.event_set.system(system), jnp.asarray(self.ts[0])
        met = native_call(
            partial(_is_met, system), q, v, t, params, differ=(True, True, False, False)
        )
        if not assembled:
            return q, v, met
        # With both states in one program: no branch on values is needed under `vmap`.
        nearest = assemble(system, q, v, t, params, fixed=self.study.fixed)
        keep = met & self.may_skip_assembly
        q, v = (jnp.where(keep, a, b) for a, b in zip((q, v), nearest, strict=True))
        return q, v, met

    def states(self, varying: Tree, shared: Tree, count: int) -> tuple[Any, Any, Any]:
        """Initial states and parameters of some trajectories."""

        def all_of(assembled: bool) -> Any:
            def initial_state(draws: Tree) -> Any:
                inputs = merged(shared, draws)
                return *self.start(inputs, assembled), self.params(inputs)

            return jax.jit(jax.vmap(initial_state, axis_size=count))(varying)

        q, v, met, params = all_of(not self.may_skip_assembly)
        if self.may_skip_assembly and not bool(met.all()):
            q, v, met, params = all_of(True)
        return q, v, params

    def computed(
        self, inputs: Tree, assembled: bool
    ) -> tuple[dict[str, Array], dict[str, Array], Array]:
        """The stored arrays, all requested quantities, and whether the start was met."""
        params = self.params(inputs)
        q, v, met = self.start(inputs, assembled)
        values = self._values(self.motion(q, v, params), params)
        stored = {name: self._stored(name, values[name]) for name in self._names}
        return stored, {name: values[name] for name in ("status", *sorted(self.wanted))}, met

    def motion(self, q: Array, v: Array, params: dict[str, Any]) -> Solution:
        """The trajectory from a start, with the policies and events of the study."""
        study = self.study
        return simulate(
            self.system, q, v, self.ts, params,
            method=study.method, steps=study.steps, projection=study.projection,
            formulation=study.formulation,
            events=self.event_set.events, inactive=study.inactive,
        )  # fmt: skip

    def _values(self, sol: Solution, params: Any) -> dict[str, Array]:
        # All of them: what no statistic and no stored array needs is eliminated by the compiler.
        values: dict[str, Array] = {
            "status": sol.status,
            "t_failed": sol.t_failed,
            "rank": sol.rank,
            "energy_drift": sol.energy_drift,
            "integration_error": sol.integration_error,
            "missed_events": jnp.zeros_like(sol.status),
            "worst_position_residual": jnp.nanmax(sol.position_residual),
            "worst_velocity_residual": jnp.nanmax(sol.velocity_residual),
        }
        values |= {name: getattr(sol, name) for name in SERIES if name not in _DERIVED}
        named = named_values(sol.q, sol.v, self.system.dynamics.n_states)
        values["q"], values["v"] = (
            jnp.concatenate([x, sol.memory], axis=1) for x in (named, sol.v)
        )

        def rates(q: Array, v: Array, t: Array) -> Array:
            return self.system.dynamics.speeds(*self.system.arguments(q, v, t, params))

        def held(rates: Array) -> Array:
            """Rates, and those of what controllers keep, which are zero."""
            return jnp.concatenate([rates, jnp.zeros_like(sol.memory)], axis=1)

        values["rates"] = held(jax.vmap(rates)(sol.q, sol.v, sol.ts))
        values |= {
            name: getattr(sol, array)[:, k]
            for name, (array, k) in quantity_entries(self.system).items()
        }
        if sol.events is not None:
            values |= event_values(sol.events, sol.ts, sol.memory.shape[1])
        reactions = None
        if self._needs_reactions:
            reactions = observe(self.system, sol, params, formulation=self.study.formulation)
            values["qdd"] = held(reactions.qdd)
            values["constraint_force"] = held(reactions.constraint_force)
            multipliers = reactions.multipliers.items()
            values |= {multipliers_name(name): x for name, x in multipliers}
        for name, quantity in self.study.observe.items():
            states = sol.q, sol.v, sol.memory, sol.ts
            values[name] = quantity.along(self.system, states, params, reactions)
        return values

    @cached_property
    def quantities(self) -> dict[str, Quantity]:
        """All quantities of the study by name."""
        return quantities_of(self.study, self.system)

    @cached_property
    def _needs_reactions(self) -> bool:
        of_reactions = {*_OBSERVED, *multipliers_names(self.system)}
        is_wanted = not of_reactions.isdisjoint({*self._series, *self.wanted})
        return is_wanted or any(x.needs_reactions for x in self.study.observe.values())

    @cached_property
    def _series(self) -> tuple[str, ...]:
        """The series and observed quantities that are stored."""
        study = self.study
        names = () if study.store == "statistics" else (*study.save, *study.observe)
        each = (multipliers_names(self.system) if x == "multipliers" else (x,) for x in names)
        return tuple(dict.fromkeys(name for group in each for name in group))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The arrays that are stored."""
        audit = AUDIT if self.study.store == "statistics" else self.quantities
        always = [name for name in audit if self.quantities[name].is_stored]
        missed = OF_EVENTS[-1:] if self.study.events else ()
        return tuple(dict.fromkeys((*always, *missed, *self._series)))

    def _stored(self, name: str, value: Array) -> Array:
        if self.quantities[name].is_stored:
            return value
        if self.study.store == "final" and self.quantities[name].dims[:1] == ("time",):
            value = value[-1:]
        return value

    def is_good(self, values: Mapping[str, Array]) -> Array:
        """Whether trajectories were computed to their end."""
        return jnp.asarray(succeeded(values["status"]))

    def shared_arrays(self) -> Iterable[tuple[str, np.ndarray, dict[str, Any]]]:
        """The saved times, and the names of the coordinates and of quasi-velocities."""
        system, kept = self.system, memory_names(self.system)
        ts = save_times(self.study)[-1 if self.study.store == "final" else 0 :]
        yield "t", ts, {"long_name": "time", "units": "s"}
        names = (*shown_coordinates(system.coordinates), *system.states, *kept)
        yield "coordinate", np.array(names), {}
        if system.velocities:
            yield VELOCITY, np.array((*system.velocity_names, *kept)), {}

    def dimensions(self, name: str, count: int) -> Dims:
        """Time first, then coordinates, velocities or rows of the array's own."""
        rows = (f"{name}_row", *(f"{name}_{k}" for k in range(count)))
        return (*self.quantities[name].dims, *rows)[:count]

    def attributes(self, name: str) -> dict[str, Any]:
        """Long name and units, and the meaning of a status (CF conventions, section 3.5)."""
        attributes = self.quantities[name].attributes(name)
        if name == "status":
            attributes["flag_values"] = [int(status) for status in Status]
            attributes["flag_meanings"] = " ".join(status.name for status in Status)
        return attributes


def _is_met(system: System, q: Array, v: Array, t: Array, params: Any) -> Array:
    q, v, t, params = system.arguments(q, v, t, params)
    tolerance = _ROUND_OFF * jnp.finfo(q.dtype).eps
    extents, levels = extents_at(system, q, v, t, params), levels_of(system, q, v, t, params)

    def small(level: Array, A: Array, x: Array) -> Array:
        return (jnp.abs(level) <= tolerance * matvec(jnp.abs(A), jnp.abs(x) + extents)).all()

    positions = small(levels.position, levels.A_position, q)
    speeds = system.dynamics.speeds(q, v, t, params)
    velocities = small(levels.velocity, levels.A_velocity, speeds)
    return positions & velocities & jnp.isfinite(q).all() & jnp.isfinite(v).all()
