"""The quantities of a study by name: dimensions, units and titles of their arrays.

`quantities_of` has all that can be observed, stored or reduced: the series of `simulate`, its
audit, coordinates and velocities, multipliers, observed quantities, and what events leave.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config.errors import Problem, refuse, refuse_all
from jaxmech.ensemble.members.observed import array_name
from jaxmech.ensemble.statistics import FirstPassage
from jaxmech.integrate import Events, EventSet, event_set_of
from jaxmech.system import System
from jaxmech.utils.text import not_one_of
from jaxmech.utils.units import columns, shown_coordinates, units_of

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

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of its array: its long name, and its units if it has some."""
        title = {"long_name": _TITLES.get(name, name).replace("_", " ")}
        return title | ({"units": self.unit} if self.unit else {})


def quantities_of(study: Any, system: System) -> dict[str, Quantity]:
    """All quantities of a study, or a StudyError if two have one name, or a name none."""
    time, problems = ("time",), list[Problem]()
    coordinate = ("time", "coordinate")
    velocity = ("time", VELOCITY if system.velocities else "coordinate")
    known = dict.fromkeys(("q", "rates"), Quantity(coordinate))
    known |= dict.fromkeys(("v", "qdd", "constraint_force"), Quantity(velocity))
    for name in ("energy", "position_residual", "velocity_residual"):
        known[name] = Quantity(time, _UNITS.get(name, ""))
    known |= {name: Quantity((), _UNITS.get(name, ""), is_stored=True) for name in AUDIT}
    known |= dict.fromkeys(multipliers_names(system), Quantity(time))
    entries = quantity_entries(system)
    units = units_of(system.units, entries)
    known |= {name: Quantity(time, units.get(name, "")) for name in entries}
    for name, item in study.observe.items():
        if name in known or name == "multipliers":
            message = "must have another name: there is a quantity of that name"
            problems.append(Problem(("observe", name), message))
        known[name] = Quantity(time if item.keep == "all" else (), item.unit or "")
    crossed = (*entries, *study.observe)
    if study.events:
        known |= {name: Quantity((), _UNITS.get(name, ""), is_stored=True) for name in OF_EVENTS}
    for name, event in study.events.items():
        occurrence = (f"{name}_occurrence",)
        own = {
            f"{name}_count": Quantity(is_stored=True),
            f"{name}_time": Quantity(unit="s"),
            f"{name}_times": Quantity(occurrence, "s", is_stored=True),
            f"{name}_q": Quantity((*occurrence, *coordinate[1:]), is_stored=True),
            f"{name}_v": Quantity((*occurrence, *velocity[1:]), is_stored=True),
            f"{name}_passed": Quantity(time),
        }
        if clashes := own.keys() & known.keys():
            message = f"must have another name: there is a quantity `{min(clashes)}` already"
            problems.append(Problem(("events", name), message))
        if event.of is not None and event.of not in crossed:
            message = not_one_of(event.of, crossed, "a coordinate or an observed quantity")
            problems.append(Problem(("events", name, "of"), message))
        known |= own
    for name, statistic in study.statistics.items():
        is_passage = isinstance(statistic, FirstPassage)
        valid, what = (study.events, "an event of this study") if is_passage else (known, "")
        for of in statistic.quantities:
            if of not in valid:
                message = not_one_of(of, valid, what or "a quantity")
                problems.append(Problem(("statistics", name, "of"), message))
    refuse_all(problems)
    return known


def quantity_entries(system: System) -> dict[str, tuple[str, int]]:
    """The names in q, those in v that are no rates, and those of controllers: array and index."""
    kept = memory_names(system)
    entries = columns(system.coordinates, system.velocity_names, kept)
    named = {*shown_coordinates(system.coordinates), *system.velocities, *system.states, *kept}
    return {name: entry for name, entry in entries.items() if name in named}


def memory_names(system: System) -> tuple[str, ...]:
    """The names of what controllers keep, which the stored q and v end with."""
    return () if system.sampling is None else system.sampling.names


def multipliers_name(constraint: str) -> str:
    """The name of the multipliers of a constraint."""
    return array_name(f"multipliers_{constraint}")


def multipliers_names(system: System) -> tuple[str, ...]:
    """The names of the multipliers of all constraints."""
    return tuple(multipliers_name(constraint.name) for constraint in system.constraints)


def study_events(study: Any, system: System) -> EventSet:
    """The events of a study for `simulate`, or a StudyError."""
    entries, observe = quantity_entries(system), study.observe
    try:
        events = [item.event(name, entries, observe) for name, item in study.events.items()]
        return event_set_of(system, events, study.inactive)
    except (TypeError, ValueError) as error:
        raise refuse("events", f"cannot be used: {error}") from error


def event_values(events: Events, ts: Array, kept: int) -> dict[str, Array]:
    """The quantities that the events of one trajectory leave, by name.

    What controllers keep, so many numbers, is not recorded at events: NaN.
    """
    missed = sum((events[name].missed for name in events), jnp.zeros_like(events.stopped_by))
    values = {"stopped_by": events.stopped_by, "t_end": events.t_end, "missed_events": missed}
    for name in events:
        record = events[name]
        values |= {
            f"{name}_count": record.count,
            f"{name}_time": record.t[0],
            f"{name}_times": record.t,
            f"{name}_q": jnp.pad(record.q, ((0, 0), (0, kept)), constant_values=jnp.nan),
            f"{name}_v": jnp.pad(record.v, ((0, 0), (0, kept)), constant_values=jnp.nan),
            f"{name}_passed": record.t[0] <= ts,
        }
    return values
