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
from jaxmech.ensemble.members.base import (
    Dims,
    StoredArray,
    Tree,
    guess,
    merged,
    name_arrays,
    params_of,
    plain_attributes,
    quantity_entries,
    velocity_dimension,
)
from jaxmech.ensemble.members.events import (
    event_dimensions,
    event_names,
    event_quantities,
    study_events,
)
from jaxmech.ensemble.members.observed import (
    AUDIT,
    SERIES,
    Observed,
    multipliers_name,
    multipliers_names,
    quantity_unit,
)
from jaxmech.ensemble.study import Study
from jaxmech.integrate import EventSet
from jaxmech.linalg import matvec
from jaxmech.run import Solution, observe, simulate
from jaxmech.state import assemble
from jaxmech.status import Status, succeeded
from jaxmech.system import System, extents_at, levels_of, named_values
from jaxmech.utils.units import units_of

_BY_VELOCITY = {"v", "qdd", "constraint_force"}
_LONG_NAMES = {
    "q": "generalized coordinates, and states of first order",
    "v": "generalized velocities",
    "rates": "rates of the coordinates, T v with quasi-velocities",
    "qdd": "generalized accelerations",
    "constraint_force": "generalized force of the constraints on the system, A^T lambda",
    "energy": "energy v . dL/dv - L",
    "position_residual": "largest |phi|, of all steps where they are not projected",
    "velocity_residual": "largest |dphi/dt| and |psi| likewise",
    "worst_position_residual": "largest |phi| of all saves",
    "worst_velocity_residual": "largest |dphi/dt| and |psi| of all saves",
    "energy_drift": "largest |E - E(start)|, NaN where E is not conserved",
    "integration_error": "estimated error of the integration relative to the motion",
    "missed_events": "occurrences of events in too long steps, not located",
    "rank": "smallest number of independent constraint equations",
    "status": "how the trajectory ended; -1 is not yet computed",
    "t_failed": "time of the failure, NaN where there was none",
}
_OBSERVED = {"qdd", "multipliers", "constraint_force"}
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

    def switched(self, params: Any) -> tuple[System, Any]:
        """The system and its parameters, with the constraints that are on at the start."""
        params = self.system.with_outputs(params)
        return self.event_set.system(self.system), self.event_set.params(
            params, self.event_set.active()
        )

    def start(self, inputs: Tree, assembled: bool) -> tuple[Array, Array, Array]:
        """The initial state, and whether the guess is on the constraints to round-off already."""
        # A guess that is, is its own nearest state: for a batch, the search of `assemble` costs as
        # much as thousands of steps.
        q, v = guess(self.subject, inputs, self.dtype)
        system, params = self.switched(self.params(inputs))
        t = jnp.asarray(self.ts[0])
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
        stored = {name: self._stored(name, values[name]) for name in self._names(values)}
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
        rates = jax.vmap(self._rates, (0, 0, 0, None))(sol.q, sol.v, sol.ts, params)
        values["rates"] = self._held(rates, sol)
        values |= {
            name: getattr(sol, array)[:, k]
            for name, (array, k) in quantity_entries(self.system).items()
        }
        if sol.events is not None:
            values |= event_quantities(sol.events, sol.ts, sol.memory.shape[1])
        reactions = None
        if self._needs_reactions:
            reactions = observe(self.system, sol, params, formulation=self.study.formulation)
            values["qdd"] = self._held(reactions.qdd, sol)
            values["constraint_force"] = self._held(reactions.constraint_force, sol)
            multipliers = reactions.multipliers.items()
            values |= {multipliers_name(name): x for name, x in multipliers}
        for name, quantity in self.study.observe.items():
            states = sol.q, sol.v, sol.memory, sol.ts
            values[name] = quantity.along(self.system, states, params, reactions)
        return values

    def _held(self, rates: Array, sol: Solution) -> Array:
        """Rates, and those of what controllers keep, which are zero."""
        return jnp.concatenate([rates, jnp.zeros_like(sol.memory)], axis=1)

    def _rates(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        return self.system.dynamics.speeds(*self.system.arguments(q, v, t, params))

    @cached_property
    def _needs_reactions(self) -> bool:
        names = {*self._series, *self.wanted}
        is_stored = not names.isdisjoint({*_OBSERVED, *multipliers_names(self.system)})
        return is_stored or any(
            quantity.needs_reactions for quantity in self.study.observe.values()
        )

    @property
    def _series(self) -> tuple[str, ...]:
        store = self.study.store
        return () if store == "statistics" else (*self.study.save, *self.study.observe)

    def _names(self, values: dict[str, Array]) -> list[str]:
        if self.study.store == "statistics":
            return [*AUDIT, *(("missed_events",) if self.study.events else ())]
        stored = [*AUDIT, *event_names(self.study.events, stored=True)]
        for name in self._series:
            stored += multipliers_names(self.system) if name == "multipliers" else [name]
        return list(dict.fromkeys(stored))

    def _stored(self, name: str, value: Array) -> Array:
        study = self.study
        if name in AUDIT or name in event_names(study.events):
            return value
        quantity = study.observe.get(name, Observed(""))
        if study.store == "final" and quantity.keep == "all":
            value = value[-1:]
        if study.stored_precision and jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(study.stored_precision)
        return value

    def is_good(self, values: Mapping[str, Array]) -> Array:
        """Whether trajectories were computed to their end."""
        return jnp.asarray(succeeded(values["status"]))

    def shared_arrays(self) -> Iterable[StoredArray]:
        """The saved times, and the names of the coordinates and of quasi-velocities."""
        ts = save_times(self.study)[-1 if self.study.store == "final" else 0 :]
        yield StoredArray("t", ts, ("time",), {"long_name": "time", "units": "s"})
        yield from name_arrays(self.system)

    def dimensions(self, name: str, count: int) -> Dims:
        """Time first, then coordinates, velocities or rows of the array's own."""
        first = self._first_dimensions.get(name, ("time",))
        last = "coordinate" if name in ("q", "rates") else f"{name}_row"
        last = velocity_dimension(self.system) if name in _BY_VELOCITY else last
        return (*first, last, *(f"{name}_{k}" for k in range(count)))[:count]

    @property
    def _first_dimensions(self) -> dict[str, Dims]:
        study = self.study
        dims = event_dimensions(study.events, velocity_dimension(self.system))
        for name, quantity in study.observe.items():
            if quantity.keep != "all":
                dims[name] = ()
        return dims

    def attributes(self, name: str) -> dict[str, Any]:
        """Long name and units, and the meaning of a status (CF conventions, section 3.5)."""
        study, system = self.study, self.system
        observed = {key: quantity.unit or "" for key, quantity in study.observe.items()}
        units = units_of(system.units, quantity_entries(system))
        unit = quantity_unit(name, observed, study.events, units)
        attributes = plain_attributes(_LONG_NAMES.get(name, name), unit)
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
