"""`FitStudy`: everything that defines a fit from a file, as a tree of frozen dataclasses.

The schema of a configuration file, the text of `jaxmech fit --help` and the resolved configuration
in a run folder all come from this tree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from jaxmech.config import InFile
from jaxmech.config.errors import Problem, refuse_all
from jaxmech.identify import (
    Huber,
    Settings,
    Shooting,
    Table,
)
from jaxmech.laws import UdwadiaKalaba
from jaxmech.utils.text import doc, setting


def _flat(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten tables, so that `friction.c1 = ...` has the name "friction.c1"."""
    flat: dict[str, Any] = {}
    for name, value in entries.items():
        inner = _flat(value) if isinstance(value, Mapping) and value else {"": value}
        flat |= {f"{name}.{rest}".rstrip("."): entry for rest, entry in inner.items()}
    return flat


def _is_pair(value: Any) -> bool:
    numbers = isinstance(value, list | tuple) and len(value) == 2
    return numbers and all(_is_number(x) for x in value)


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold, infinity included."""
    try:
        return isinstance(value, int | float) and float(value) == value
    except OverflowError:
        return False


@dataclass(frozen=True, kw_only=True)
class FreeParameters:
    """The parameters to fit, their initial values, bounds and priors."""

    free: tuple[str, ...] | None = setting(
        None, "parameters to fit; those of the model, or all, by default"
    )
    start: Mapping[str, Any] = setting({}, "initial values, in place of the model's")
    bounds: Mapping[str, Any] = setting({}, "[low, high], -inf or inf for an open side; by name")
    prior: Mapping[str, Any] = setting({}, "[mean, standard deviation]; needs data.noise_sd")

    def __post_init__(self) -> None:
        for key in ("start", "bounds", "prior"):
            object.__setattr__(self, key, _flat(getattr(self, key)))
        problems = []
        for name, value in self.bounds.items():
            if not (_is_pair(value) and value[0] < value[1]):
                text = "must be [low, high] with low below high"
                problems.append(Problem(("bounds", name), f"{text}, but is {value}"))
        for name, value in self.prior.items():
            if not (_is_pair(value) and np.isfinite(value[0]) and value[1] > 0):
                text = "must be [mean, standard deviation] with a positive deviation"
                problems.append(Problem(("prior", name), f"{text}, but is {value}"))
        refuse_all(problems)


@dataclass(frozen=True, kw_only=True)
class FitStudy(Settings):
    """A fit: a model, its unknown parameters, recordings, and the settings of `fit`."""

    model: Annotated[str | Any, InFile(str)] = field(
        metadata=doc(
            'next to this file "path/file.py:attribute", an Identifiable, Model or Mechanism, or '
            "the path of an MJCF or URDF file"
        )
    )
    data: Table = field(metadata=doc("file and columns of the recordings"))
    model_options: Mapping[str, Any] = setting({}, "options of the model, such as { links = 10 }")
    parameters: FreeParameters = setting(
        FreeParameters(), "parameters to fit, with initial values, bounds and priors"
    )
    initial_states: Literal["fixed", "free"] = setting(
        "free", "whether the initial states of the recordings are fitted too"
    )
    horizon: Shooting | None = setting(None, "segments of the recordings, for chaotic motion")
    formulation: UdwadiaKalaba = setting(UdwadiaKalaba(), "law of motion")
    controllers: tuple[str, ...] = setting(
        (), 'controllers of the system, each a `Controller` in a Python file, "file.py:name"'
    )
    loss: Huber | None = setting(None, "a robust loss, against outliers")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_all(_unweighed(self))


def _unweighed(study: FitStudy) -> Iterator[Problem]:
    """Prior knowledge without a noise level to weigh it against, or outside the bounds."""
    if study.parameters.prior and study.data.noise_sd is None:
        text = "needs data.noise_sd, against which it is weighed"
        yield Problem(("parameters", "prior"), text)
    if study.initial_states == "free" and study.data.start_sd and study.data.noise_sd is None:
        text = (
            "needs data.noise_sd, against which it is weighed; leave it out where that is unknown"
        )
        yield Problem(("data", "start_sd"), text)
    for name, (mean, _) in study.parameters.prior.items():
        ends = study.parameters.bounds.get(name, (-np.inf, np.inf))
        if not ends[0] < mean < ends[1]:
            text = f"must have its mean inside the bounds {list(ends)}, but has {mean:g}"
            yield Problem(("parameters", "prior", name), text)
