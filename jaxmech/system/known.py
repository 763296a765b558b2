"""`KnownState`: a state whose numbers are known, at which compiled functions evaluate a system."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import native_program
from jaxmech.system.consistency import Levels, extents_at, near
from jaxmech.system.constraints import Holonomic, Nonholonomic
from jaxmech.system.system import Params, System
from jaxmech.utils.arrays import HostArray

_ANY_MASS = 100.0  # units of round-off of the largest mass up to which there is none
_SHARED = 0.3  # part that a coordinate takes in a motion without mass
_AWAY = 0.02  # relative to 1 + |q|, off the constraints

_compiled = native_program("system", differ=(True, True, False, False))
_extents = _compiled(extents_at)


@_compiled
def _levels(system: System, q: Array, v: Array, t: Array, params: Params) -> Levels:
    return Levels.at(system, q, v, t, params)


@_compiled
def mass_and_rows(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array]:
    """M and A at a known state, by a compiled function."""
    return system.dynamics.mass(q, v, t, params), system.dynamics.rows(q, v, t, params)


class Violation(NamedTuple):
    """A violated constraint, with the level and the size of its residual."""

    name: str
    level: str
    size: float


@dataclass(frozen=True, eq=False)
class KnownState:
    """A state whose numbers are known, with what a system is there, as arrays of numpy."""

    system: System
    q: Any
    v: Any
    t: Any
    params: Params

    @cached_property
    def mass_and_rows(self) -> tuple[HostArray, HostArray]:
        """M and A."""
        M, A = mass_and_rows(*self._state)
        return np.asarray(M), np.asarray(A)

    @cached_property
    def levels(self) -> Levels:
        """The residuals and Jacobians of the constraints."""
        levels: Levels = jax.tree.map(np.asarray, _levels(*self._state))
        return levels

    @cached_property
    def extents(self) -> HostArray:
        """The extents of the coordinates, (n,)."""
        return np.asarray(_extents(*self._state))

    @property
    def _state(self) -> tuple[Any, ...]:
        return self.system, self.q, self.v, self.t, self.params

    def violations(self) -> list[Violation]:
        """The violated constraints, positions before velocities."""
        q, v, t, params = self._state[1:]
        system, v = self.system.plain, self.system.dynamics.speeds(q, v, t, params)
        if not system.constraints:
            return []
        plain, sizes = KnownState(system, q, v, t, params), system.dynamics.sizes(q, v, t, params)
        levels, extents, x = plain.levels, plain.extents, np.asarray(q)
        violations = []
        for level, kind, rates, residuals, A in (
            ("position", Holonomic, None, levels.position, levels.A_position),
            (
                "velocity", Holonomic | Nonholonomic, np.asarray(v), levels.velocity,
                levels.A_velocity,
            ),
        ):  # fmt: skip
            first = 0
            for constraint, size in zip(system.constraints, sizes, strict=True):
                if not isinstance(constraint, kind) or not size:
                    continue
                rows = slice(first, first + size)
                first += size
                if not near(residuals[rows], A[rows], x, extents, rates=rates, xp=np):
                    largest = float(np.abs(residuals[rows]).max())
                    violations.append(Violation(constraint.name, level, largest))
        return violations

    def without_mass(self) -> tuple[str, ...]:
        """The velocities that a motion on the constraints can have without kinetic energy.

        Also with a negative one, by negative masses or inertias.
        """
        M, A = self.mass_and_rows
        if not (np.isfinite(M).all() and np.isfinite(A).all()):
            return ()
        least = _ANY_MASS * float(np.finfo(M.dtype).eps)
        values, vectors = np.linalg.eigh(M / (np.abs(M).max() or 1.0) + _unit(A).T @ _unit(A))
        free = np.abs(vectors[:, values <= least])
        return tuple(
            name
            for name, row in zip(self.system.velocity_names, free, strict=True)
            if row.max(initial=0.0) > _SHARED
        )

    def independent_equations(self) -> tuple[int, int]:
        """The number of independent constraint equations here, and a little away."""
        draw, x = np.random.default_rng(7), np.asarray(self.q)
        away = x + _AWAY * (1 + np.abs(x)) * draw.uniform(-1, 1, x.shape)
        least = float(jnp.finfo(x.dtype).eps) ** 0.375
        here, elsewhere = (
            KnownState(self.system, q, self.v, self.t, self.params).levels.A_velocity
            for q in (x, away.astype(x.dtype))
        )
        ranks = [int(np.linalg.matrix_rank(_unit(A), tol=least)) for A in (here, elsewhere)]
        return ranks[0], ranks[1]


def _unit(A: HostArray) -> HostArray:
    """Rows of unit length; zeros remain."""
    unit: HostArray = A / np.linalg.norm(A, axis=1, keepdims=True).clip(np.finfo(float).tiny)
    return unit
