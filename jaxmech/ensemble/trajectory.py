"""One trajectory of a study as a function of its draws: its stored and observed quantities."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.assemble import assemble
from jaxmech.compiler import native_call
from jaxmech.config.load import Subject
from jaxmech.consistency import extents_at, levels_of
from jaxmech.ensemble.observed import (
    AUDIT,
    SERIES,
    Observed,
    event_names,
    event_quantities,
)
from jaxmech.ensemble.passages import study_watch
from jaxmech.ensemble.study import SECTIONS, Study
from jaxmech.integrate import Watch
from jaxmech.linalg import times
from jaxmech.observe import observe
from jaxmech.simulate import simulate
from jaxmech.solution import Solution
from jaxmech.system import System

Tree = dict[str, dict[str, Any]]  # section, name -> value
_OBSERVED = {"qdd", "multipliers", "constraint_force"}
_ROUND_OFF = 64  # units of round-off within which a state is on its constraints


def save_times(study: Study) -> np.ndarray:
    """The saved times [s], shape (saves,)."""
    return np.linspace(study.times.start, study.times.end, study.times.saves)


def merged(same: Tree, own: Tree) -> Tree:
    """Merge all inputs of one trajectory."""
    return {section: same[section] | own[section] for section in SECTIONS}


def first_of(varying: Tree, same: Tree) -> Tree:
    """All inputs of the first trajectory of some."""
    return merged(same, jax.tree.map(lambda x: x[0], varying))


def params_of(subject: Subject, inputs: Tree) -> dict[str, Any]:
    """The parameters of one trajectory, with the defaults of the model."""
    return {**(subject.model.params if subject.model else {}), **inputs["parameters"]}


def guess(subject: Subject, inputs: Tree, dtype: Any) -> tuple[Array, Array]:
    """The state of the model, with the drawn values in place."""
    system, model = subject.system, subject.model
    q, v = jnp.zeros((2, system.n), dtype)
    if model:
        state = model.state(inputs["start"], params_of(subject, inputs))
        q, v = (jnp.asarray(x, dtype) for x in state)
    for name, value in inputs["coordinates"].items():
        q = q.at[system.coordinates.index(name)].set(value)
    for name, value in inputs["velocities"].items():
        v = v.at[system.velocity_names.index(name)].set(value)
    return q, v


@dataclass(frozen=True, eq=False)
class StudyTrajectory:
    """One trajectory of a study as a function of its draws."""

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

    @property
    def ts(self) -> np.ndarray:
        """The saved times [s]."""
        return save_times(self.study).astype(self.dtype)

    @property
    def may_skip_assembly(self) -> bool:
        """Whether states come from a model alone, which makes consistent ones."""
        given = self.study.coordinates or self.study.velocities
        return self.subject.model is not None and not given

    def params(self, inputs: Tree) -> dict[str, Any]:
        """The parameters, with the defaults of the model."""
        return params_of(self.subject, inputs)

    @cached_property
    def watch(self) -> Watch | None:
        """The watch of the events."""
        return study_watch(self.study, self.system)

    def switched(self, params: Any) -> tuple[System, Any]:
        """The system and its parameters, with the constraints that are on at the start."""
        if self.watch is None:
            return self.system, params
        return self.watch.system(self.system), self.watch.params(params, self.watch.active())

    def start(self, inputs: Tree, assembled: bool) -> tuple[Array, Array, Array]:
        """The initial state, and whether the guess is on the constraints to round-off already."""
        # A guess that is, is its own nearest state: for a batch, the search of `assemble` costs as
        # much as thousands of steps.
        q, v = guess(self.subject, inputs, self.dtype)
        system, params = self.switched(self.params(inputs))
        t = jnp.asarray(self.ts[0])
        met = native_call(partial(_is_met, system), q, v, t, params)
        if not assembled:
            return q, v, met
        nearest = assemble(system, q, v, t, params, fixed=self.study.fixed)
        keep = met & self.may_skip_assembly
        q, v = (jnp.where(keep, a, b) for a, b in zip((q, v), nearest, strict=True))
        return q, v, met

    def states(self, varying: Tree, same: Tree, count: int) -> tuple[Any, Any, Any]:
        """Initial states and parameters of some trajectories."""

        def all_of(assembled: bool) -> Any:
            def one(own: Tree) -> Any:
                inputs = merged(same, own)
                return *self.start(inputs, assembled), self.params(inputs)

            return jax.jit(jax.vmap(one, axis_size=count))(varying)

        q, v, met, params = all_of(not self.may_skip_assembly)
        if self.may_skip_assembly and not bool(met.all()):
            q, v, met, params = all_of(True)
        return q, v, params

    def computed(
        self, inputs: Tree, assembled: bool
    ) -> tuple[dict[str, Array], dict[str, Array], Array]:
        """The stored arrays, all requested quantities, and whether the start was met."""
        study, params = self.study, self.params(inputs)
        q, v, met = self.start(inputs, assembled)
        sol = simulate(
            self.system, q, v, self.ts, params,
            method=study.method, steps=study.steps, projection=study.projection,
            formulation=study.formulation,
            events=self.watch.events if self.watch else (), inactive=study.inactive,
        )  # fmt: skip
        values = self._values(sol, params)
        stored = {name: self._stored(name, values[name]) for name in self._names(values)}
        return stored, {name: values[name] for name in ("status", *sorted(self.wanted))}, met

    def _values(self, sol: Solution, params: Any) -> dict[str, Array]:
        """Compute every quantity by name; unused ones are eliminated."""
        values: dict[str, Array] = {
            "status": sol.status,
            "t_failed": sol.t_failed,
            "rank": sol.rank,
            "energy_drift": sol.energy_drift,
            "integration_error": sol.integration_error,
            "worst_position_residual": jnp.nanmax(sol.position_residual),
            "worst_velocity_residual": jnp.nanmax(sol.velocity_residual),
        }
        values |= {name: getattr(sol, name) for name in SERIES if name not in _OBSERVED}
        values |= {name: sol.q[:, k] for k, name in enumerate(self.system.coordinates)}
        states = self.system.states
        values |= {name: sol.v[:, k - len(states)] for k, name in enumerate(states)}
        if sol.events is not None:
            values |= event_quantities(sol.events, sol.ts)
        seen = None
        if self._needs_reactions:
            seen = observe(self.system, sol, params, formulation=self.study.formulation)
            values |= {"qdd": seen.qdd, "constraint_force": seen.constraint_force}
            values |= {f"multipliers_{name}": x for name, x in seen.multipliers.items()}
        for name, quantity in self.study.observe.items():
            values[name] = quantity.along(sol.q, sol.v, sol.ts, params, seen)
        return values

    @cached_property
    def _needs_reactions(self) -> bool:
        names = {*self._series, *self.wanted}
        of = any(n in _OBSERVED or n.startswith("multipliers_") for n in names)
        return of or any(quantity.needs_reactions for quantity in self.study.observe.values())

    @property
    def _series(self) -> tuple[str, ...]:
        """The names of the stored series beside the audit."""
        store = self.study.store
        if store == "statistics":
            return ()
        return (*self.study.save, *self.study.observe) if isinstance(store, str) else store

    def _names(self, values: dict[str, Array]) -> list[str]:
        """The names of the stored arrays, one for the multipliers of each constraint."""
        if self.study.store == "statistics":
            return []
        found = [*AUDIT, *event_names(self.study.events, stored=True)]
        for name in self._series:
            whole = [key for key in values if key.startswith("multipliers_")]
            found += whole if name == "multipliers" else [name]
        return list(dict.fromkeys(found))

    def _stored(self, name: str, value: Array) -> Array:
        """Reduce a quantity to its stored form."""
        study = self.study
        if name in AUDIT or name in event_names(study.events):
            return value
        quantity = study.observe.get(name, Observed(""))
        if study.store == "final" and quantity.keep == "all":
            value = value[-1:]
        if study.stored_precision and jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(study.stored_precision)
        return value


def _is_met(system: System, q: Array, v: Array, t: Array, params: Any) -> Array:
    """Whether a state is on all constraints to round-off."""
    q, v, t, params = system.arguments(q, v, t, params)
    tolerance = _ROUND_OFF * jnp.finfo(q.dtype).eps
    extents, at = extents_at(system, q, v, t, params), levels_of(system, q, v, t, params)

    def small(level: Array, A: Array, x: Array) -> Array:
        return (jnp.abs(level) <= tolerance * times(jnp.abs(A), jnp.abs(x) + extents)).all()

    positions = small(at.position, at.A_position, q)
    speeds = small(at.velocity, at.A_velocity, v)
    return positions & speeds & jnp.isfinite(q).all() & jnp.isfinite(v).all()
