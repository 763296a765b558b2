"""One trajectory of a study as a function of its draws: its stored and observed quantities.

Its `quantities` are all that can be observed, stored or reduced, by name: the series of `simulate`,
its audit, coordinates and velocities, multipliers, observed quantities, and what events leave.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import native_call
from jaxmech.config import Subject
from jaxmech.config.errors import Key, refuse
from jaxmech.ensemble.draws import array_name
from jaxmech.ensemble.study import SECTIONS, SERIES, Study
from jaxmech.integrate import EventSet
from jaxmech.linalg import matvec
from jaxmech.run import Solution, observe, simulate
from jaxmech.state import assemble
from jaxmech.status import Status
from jaxmech.system import Levels, System, extents_at
from jaxmech.utils.units import columns, shown_coordinates, units_of

Tree = dict[str, dict[str, Any]]  # section, name -> value
Dims = tuple[str, ...]  # names of the dimensions of an array
VELOCITY = "velocity"  # dimension of quasi-velocities
_TITLES = {
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
AUDIT = (
    "status", "t_failed", "rank", "energy_drift", "integration_error", "worst_position_residual",
    "worst_velocity_residual",
)  # fmt: skip
OF_EVENTS = ("stopped_by", "t_end", "missed_events")  # quantities of a study with events
_UNITS = {"t_failed": "s", "t_end": "s", "energy": "J", "energy_drift": "J"}
_OBSERVED = {"qdd", "multipliers", "constraint_force"}  # series of `observe`
_DERIVED = {*_OBSERVED, "rates"}  # series that a `Solution` does not hold
_ROUND_OFF = 64  # units of round-off within which a state is on its constraints


class Quantity(NamedTuple):
    """What is known of a quantity before it is computed.

    Attributes:
        dims: names of the first dimensions of its array for one trajectory.
        unit: empty if it has none, or none is known.
        is_stored: whether each trajectory has it in a run folder, whatever is saved.
    """

    dims: Dims = ()
    unit: str = ""
    is_stored: bool = False


def memory_names(system: System) -> tuple[str, ...]:
    """The names of what controllers keep, which the stored q and v end with."""
    return () if system.sampling is None else system.sampling.names


def multipliers_name(constraint: str) -> str:
    """The name of the multipliers of a constraint."""
    return array_name(f"multipliers_{constraint}")


def multipliers_names(system: System) -> tuple[str, ...]:
    """The names of the multipliers of all constraints."""
    return tuple(multipliers_name(constraint.name) for constraint in system.constraints)


def merged(shared: Tree, varying: Tree) -> Tree:
    """Merge all inputs of one member."""
    return {section: shared[section] | varying[section] for section in SECTIONS}


def first_of(varying: Tree, shared: Tree) -> Tree:
    """All inputs of the first member of some."""
    return merged(shared, jax.tree.map(lambda x: x[0], varying))


@dataclass(frozen=True, eq=False)
class StudyTrajectory:
    """One trajectory of a study as a function of its draws."""

    study: Study  # with functions in place of their names
    subject: Subject  # its system

    @property
    def system(self) -> System:
        return self.subject.system

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.study.precision)

    def params(self, inputs: Tree) -> dict[str, Any]:
        """The parameters, with the defaults of the model and with inputs."""
        defaults = self.subject.model.params if self.subject.model else {}
        params = {**defaults, **inputs["parameters"]}
        return params | self.subject.inputs.of(params)

    @property
    def save_times(self) -> np.ndarray:
        """The saved times [s], shape (saves,), in double precision."""
        return np.linspace(self.study.times.start, self.study.times.end, self.study.times.saves)

    @property
    def ts(self) -> np.ndarray:
        """The saved times [s] in the precision of the study."""
        return self.save_times.astype(self.dtype)

    @property
    def may_skip_assembly(self) -> bool:
        """Whether states come from a model alone, which makes consistent ones."""
        overrides = self.study.coordinates or self.study.velocities
        return self.subject.model is not None and not overrides

    @cached_property
    def event_set(self) -> EventSet:
        """The events for `simulate`, or a StudyError."""
        events, observe = self.study.events.items(), self.study.observe
        try:
            made = [item.event(name, self.entries, observe) for name, item in events]
            return EventSet.of(self.system, made, self.study.inactive)
        except (TypeError, ValueError) as error:
            raise refuse("events", f"cannot be used: {error}") from error

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
        audit = AUDIT if self.study.store == "statistics" else self.quantities
        always = [name for name in audit if self.quantities[name].is_stored]
        missed = OF_EVENTS[-1:] if self.study.events else ()
        stored = {name: values[name] for name in dict.fromkeys((*always, *missed, *self._series))}
        if self.study.store == "final":
            for name in self._series:
                if self.quantities[name].dims[:1] == ("time",):
                    stored[name] = stored[name][-1:]
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
        named = self.system.values(sol.q, sol.v)
        values["q"], values["v"] = (
            jnp.concatenate([x, sol.memory], axis=1) for x in (named, sol.v)
        )

        def rates(q: Array, v: Array, t: Array) -> Array:
            return self.system.dynamics.speeds(*self.system.arguments(q, v, t, params))

        def held(rates: Array) -> Array:
            """Rates, and those of what controllers keep, which are zero."""
            return jnp.concatenate([rates, jnp.zeros_like(sol.memory)], axis=1)

        values["rates"] = held(jax.vmap(rates)(sol.q, sol.v, sol.ts))
        values |= {name: getattr(sol, array)[:, k] for name, (array, k) in self.entries.items()}
        if (events := sol.events) is not None:
            missed = sum((events[x].missed for x in events), jnp.zeros_like(events.stopped_by))
            values |= {"stopped_by": events.stopped_by, "t_end": events.t_end}
            values["missed_events"] = missed
            # What controllers keep is not recorded at events: NaN.
            beside = ((0, 0), (0, sol.memory.shape[1]))
            for name in events:
                record = events[name]
                values |= {
                    f"{name}_count": record.count,
                    f"{name}_time": record.t[0],
                    f"{name}_times": record.t,
                    f"{name}_q": jnp.pad(record.q, beside, constant_values=jnp.nan),
                    f"{name}_v": jnp.pad(record.v, beside, constant_values=jnp.nan),
                    f"{name}_passed": record.t[0] <= sol.ts,
                }
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
    def entries(self) -> dict[str, tuple[str, int]]:
        """The names in q, those in v that are no rates, and of controllers: array and index."""
        system, kept = self.system, memory_names(self.system)
        entries = columns(system.coordinates, system.velocity_names, kept)
        named = {*shown_coordinates(system.coordinates), *system.velocities, *system.states, *kept}
        return {name: entry for name, entry in entries.items() if name in named}

    def named_quantities(self) -> Iterator[tuple[Key, dict[str, Quantity]]]:
        """Those of the system, then each observed one and those of each event, with its key."""
        study, system = self.study, self.system
        time, coordinate = ("time",), ("time", "coordinate")
        velocity = ("time", VELOCITY if system.velocities else "coordinate")
        known = dict.fromkeys(("q", "rates"), Quantity(coordinate))
        known |= dict.fromkeys(("v", "qdd", "constraint_force"), Quantity(velocity))
        for name in ("energy", "position_residual", "velocity_residual"):
            known[name] = Quantity(time, _UNITS.get(name, ""))
        stored = (*AUDIT, *(OF_EVENTS if study.events else ()))
        known |= {name: Quantity((), _UNITS.get(name, ""), is_stored=True) for name in stored}
        known |= dict.fromkeys(multipliers_names(system), Quantity(time))
        units = units_of(system.units, self.entries)
        yield (), known | {name: Quantity(time, units.get(name, "")) for name in self.entries}
        for name, item in study.observe.items():
            own = Quantity(time if item.keep == "all" else (), item.unit or "")
            yield ("observe", name), {name: own}
        for name in study.events:
            occurrence = (f"{name}_occurrence",)
            yield (
                ("events", name),
                {
                    f"{name}_count": Quantity(is_stored=True),
                    f"{name}_time": Quantity(unit="s"),
                    f"{name}_times": Quantity(occurrence, "s", is_stored=True),
                    f"{name}_q": Quantity((*occurrence, *coordinate[1:]), is_stored=True),
                    f"{name}_v": Quantity((*occurrence, *velocity[1:]), is_stored=True),
                    f"{name}_passed": Quantity(time),
                },
            )

    @cached_property
    def quantities(self) -> dict[str, Quantity]:
        """All quantities of the study by name."""
        parts = (part for _, part in self.named_quantities())
        return {name: quantity for part in parts for name, quantity in part.items()}

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The names of the quantities that statistics are computed from."""
        return frozenset(x for statistic in self.study.statistics.values() for x in statistic.names)

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

    def shared_arrays(self) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
        """The saved times, and the names of the coordinates and of quasi-velocities."""
        system, kept = self.system, memory_names(self.system)
        ts = self.save_times[-1 if self.study.store == "final" else 0 :]
        yield "t", ts, {"long_name": "time", "units": "s"}
        names = (*shown_coordinates(system.coordinates), *system.states, *kept)
        yield "coordinate", np.array(names), {}
        if system.velocities:
            yield VELOCITY, np.array((*system.velocity_names, *kept)), {}

    def attributes(self, name: str) -> dict[str, Any]:
        """Long name and units, and the meaning of a status (CF conventions, section 3.5)."""
        attributes: dict[str, Any] = {"long_name": _TITLES.get(name, name).replace("_", " ")}
        if unit := self.quantities[name].unit:
            attributes["units"] = unit
        if name == "status":
            attributes["flag_values"] = [int(status) for status in Status]
            attributes["flag_meanings"] = " ".join(status.name for status in Status)
        return attributes


def _is_met(system: System, q: Array, v: Array, t: Array, params: Any) -> Array:
    q, v, t, params = system.arguments(q, v, t, params)
    tolerance = _ROUND_OFF * jnp.finfo(q.dtype).eps
    extents, levels = extents_at(system, q, v, t, params), Levels.at(system, q, v, t, params)

    def small(level: Array, A: Array, x: Array) -> Array:
        return (jnp.abs(level) <= tolerance * matvec(jnp.abs(A), jnp.abs(x) + extents)).all()

    positions = small(levels.position, levels.A_position, q)
    speeds = system.dynamics.speeds(q, v, t, params)
    velocities = small(levels.velocity, levels.A_velocity, speeds)
    return positions & velocities & jnp.isfinite(q).all() & jnp.isfinite(v).all()
