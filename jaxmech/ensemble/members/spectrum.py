"""One spectrum of a study as a function of its draws: an equilibrium, or a steady motion."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.equilibrium import Stability, equilibrium
from jaxmech.analysis.equilibrium.equilibrium import prepared
from jaxmech.analysis.equilibrium.result import EquilibriumStatus
from jaxmech.analysis.stability import modes
from jaxmech.analysis.symmetry.symmetries import Symmetries
from jaxmech.config.load import Subject
from jaxmech.ensemble.members.base import (
    AbstractMember,
    Dims,
    StoredArray,
    Tree,
    guess,
    name_arrays,
    params_of,
    plain_attributes,
    velocity_dimension,
)
from jaxmech.ensemble.modes_study import ModesStudy

_STORED = (
    "status", "stability", "residual", "q", "v", "eigenvalues", "frequencies", "growth",
)  # fmt: skip
_LONG_NAMES = {
    "status": "whether an equilibrium was found; -1 is not yet computed",
    "stability": "stability according to the linear equations",
    "residual": "residual of the equations of equilibrium",
    "eigenvalues": "eigenvalues, zeros first, then by frequency",
    "frequencies": "frequencies of vibrations, ascending",
    "growth": "largest real part of the eigenvalues but zeros",
}
_UNITS = {"eigenvalues": "1/s", "frequencies": "Hz", "growth": "1/s"}


@dataclass(frozen=True, eq=False)
class StudySpectrum(AbstractMember):
    """The eigenvalues of an equilibrium or a steady motion as a function of its draws."""

    study: ModesStudy
    subject: Subject  # its system
    symmetries: Symmetries | None  # those that a steady motion may follow

    def computed(
        self, inputs: Tree, assembled: bool
    ) -> tuple[dict[str, Array], dict[str, Array], Array]:
        """The stored arrays, all quantities, and True: an equilibrium needs no consistent guess."""
        arguments = _arguments(self.study, self.subject, inputs)
        solution = equilibrium(self.system, **arguments, symmetries=self.symmetries)
        spectrum = modes(solution.linearization)
        met = jnp.asarray(solution.status) == EquilibriumStatus.FOUND
        stability = jnp.where(met, jnp.asarray(solution.stability), Stability.UNKNOWN)
        has_verdict = stability != Stability.UNKNOWN
        eigenvalues = jnp.where(has_verdict, spectrum.eigenvalues, jnp.nan)
        values = {
            "status": jnp.asarray(solution.status, jnp.int32),
            "stability": stability.astype(jnp.int32),
            "residual": jnp.asarray(solution.residual),
            "q": jnp.where(met, solution.q, jnp.nan),
            "v": jnp.where(met, solution.v, jnp.nan),
            "eigenvalues": eigenvalues,
            "frequencies": _frequencies(eigenvalues),
            "growth": _growth(eigenvalues, spectrum.zero),
            "unstable": stability == Stability.UNSTABLE,
        }
        stored = {name: values[name] for name in _STORED}
        values |= {name: values["q"][k] for k, name in enumerate(self.system.coordinates)}
        return stored, values, jnp.asarray(True)

    def is_good(self, values: Mapping[str, Array]) -> Array:
        """Whether members have a verdict."""
        return values["stability"] != Stability.UNKNOWN

    def shared_arrays(self) -> Iterable[StoredArray]:
        """The names of the coordinates."""
        yield from name_arrays(self.system)

    def dimensions(self, name: str, count: int) -> Dims:
        """The coordinates, or the numbers of eigenvalues."""
        dims = {"q": "coordinate", "v": velocity_dimension(self.system)}
        first = dims.get(name, "eigenvalue")
        return (first,)[:count]

    def attributes(self, name: str) -> dict[str, Any]:
        """Long name, units, and the meaning of flags (CF conventions, section 3.5)."""
        attributes = plain_attributes(name, _UNITS.get(name))
        attributes["long_name"] = _LONG_NAMES.get(name, attributes["long_name"])
        flags = {"status": EquilibriumStatus, "stability": Stability}.get(name)
        if flags is not None:
            attributes["flag_values"] = [int(flag) for flag in flags]
            attributes["flag_meanings"] = " ".join(flag.name for flag in flags)
        return attributes


def spectrum_of(study: ModesStudy, subject: Subject, first: Tree) -> StudySpectrum:
    """The spectrum of a study, with the symmetries of the member with the inputs `first`."""
    # Symmetries are found from known numbers, and not under `jit`. A member that lacks those of
    # the first one gets no verdict.
    arguments = _arguments(study, subject, first)
    if arguments["v"] is None:
        return StudySpectrum(study, subject, None)
    case = prepared(subject.system, **arguments, symmetries=None)
    symmetries: Symmetries = case.theta[-1]
    return StudySpectrum(study, subject, symmetries)


def _arguments(study: ModesStudy, subject: Subject, inputs: Tree) -> dict[str, Any]:
    q, v = guess(subject, inputs, np.dtype(study.precision))
    rates = inputs["velocities"] or (v if study.steady else None)
    params = params_of(subject, inputs)
    return {"q": q, "params": params, "t": study.time, "fixed": study.fixed, "v": rates}


def _growth(eigenvalues: Array, zero: Array) -> Array:
    real = jnp.where(zero, -jnp.inf, eigenvalues.real)
    largest = real.max(initial=-jnp.inf)
    return jnp.where(jnp.isfinite(largest), largest, jnp.nan)


def _frequencies(eigenvalues: Array) -> Array:
    imag = eigenvalues.imag
    return jnp.sort(jnp.where(imag > 0, imag, jnp.nan)) / (2 * jnp.pi)
