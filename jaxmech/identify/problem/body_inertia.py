"""Mass, centre of mass and inertia of one body together, as numbers that some body has.

With the centre of mass c, the matrix of inertia I_C about it, and the second moments of mass there,
S_C = tr(I_C)/2 1 - I_C, the pseudo-inertia of a body about the origin of its axes is

    J = [[S_C + m c c^T, m c], [m c^T, m]]

Some distribution of mass has these ten numbers if and only if J is positive definite (Wensing, Kim
and Slotine, "Linear matrix inequalities for physically consistent inertial parameter
identification", IEEE Robotics and Automation Letters 3, 2018): the mass is positive, and no
principal moment about the centre exceeds the sum of the two others. Free numbers make every such J,
and no other, by its log-Cholesky form (Rucker and Wensing, "Smooth parameterization of rigid-body
inertia", IEEE Robotics and Automation Letters 7, 2022):

    J = U U^T,   U = exp(a) [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3],
                             [0, 0, 0, 1]]

so that m = exp(2 a), c = t, and S_C = m V V^T with the upper triangle V of the d and s. Here V is
relative to its start, V = V0 (e^d, s), and t in units of the radius of gyration there, so that all
ten are zero at the start of a fit and of the same size; as unknowns they have an offset. In the
plane, I_C = I_0 exp(2 a + 2 d).
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.problem.transforms import Entry
from jaxmech.parts import AbstractRigidBody, EnergyDifference
from jaxmech.system import System

# A step of 1 would change the mass by a factor of 7, and a fit end at a flat body.
_FIRST = 0.03
_FLAT = 64  # units of round-off, relative to the largest moment, up to which a body is flat


@dataclass(frozen=True)
class BodyInertia:
    """All numbers of a body behind each other: mass, centre, inertia about it; as `Bounds`.

    Attributes:
        dimension: 2 in the plane, 3 in space.
        points: how many numbers of the centre there are; others are constant.
        moments: the shape of the inertia, (), (3,) or (3, 3).
    """

    dimension: int
    points: int
    moments: tuple[int, ...]

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """All numbers, but the lower triangle of a matrix."""
        first = 1 + self.points
        inertia = np.arange(int(np.prod(self.moments))).reshape(self.moments)
        if len(self.moments) == 2:
            inertia = inertia[np.tril_indices(3)]
        return tuple((k,) for k in [*range(first), *(first + inertia.ravel()).tolist()])

    def first(self, start: np.ndarray) -> np.ndarray:
        """The offset of the unknowns."""
        return np.full(len(self.entries(())), _FIRST)

    def limits(self, start: np.ndarray) -> np.ndarray:
        """No bounds of the unknowns, (2, size of x)."""
        return np.array([-np.inf, np.inf])[:, None] * self.units(start)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their unknowns by one: unknown."""
        return np.ones(len(self.entries(())))

    def moved(self, x: Any, z: Any, start: np.ndarray) -> Any:
        """The unknowns moved by numbers z."""
        return x + z

    def excludes(self, start: np.ndarray) -> str:
        """A start that no body has, with the inequality that it violates."""
        mass, _, inertia = self._split(np.asarray(start, float))
        if not mass > 0:
            return f"its mass {mass:.6g} is not positive"
        if self.dimension == 2:
            return "" if inertia > 0 else f"its inertia about the centre, {inertia:.6g}, is not > 0"
        matrix = inertia if inertia.ndim == 2 else np.diag(inertia)
        if not np.allclose(matrix, matrix.T, rtol=1e-6):
            return f"its matrix of inertia {matrix.tolist()} is not symmetric"
        low, middle, high = np.linalg.eigvalsh((matrix + matrix.T) / 2)
        if not low + middle - high > _FLAT * np.finfo(start.dtype).eps * high:
            return (
                f"its principal moments about the centre violate C < A + B: {high:.6g} is not "
                f"below {low:.6g} + {middle:.6g}"
            )
        return ""

    def value(self, x: Any, start: Array) -> Array:
        """The numbers for unknowns, in the order of `entries`, of the shape of the start."""
        z = jnp.asarray(x) - _FIRST
        mass0, center0, inertia0 = self._split(start)
        scale, t, v = jnp.exp(2 * z[0]), z[1 : 1 + self.points], z[1 + self.points :]
        if self.dimension == 2:
            radius = jnp.sqrt(inertia0 / mass0)
            inertia = inertia0 * scale * jnp.exp(2 * v[0])
        else:
            matrix = inertia0 if inertia0.ndim == 2 else jnp.diag(inertia0)
            V = _upper(jnp.trace(matrix) / 2 * jnp.eye(3, dtype=matrix.dtype) - matrix)
            radius = jnp.sqrt((V * V).sum() / mass0)
            triangle = jnp.diag(jnp.exp(v[:3]))
            if len(v) > 3:
                triangle = triangle.at[np.triu_indices(3, 1)].set(v[3:])
            changed = V @ triangle
            S = scale * (changed @ changed.T)
            inertia = jnp.trace(S) * jnp.eye(3, dtype=S.dtype) - S
        if len(self.moments) == 1:
            inertia = jnp.diagonal(inertia)
        return jnp.concatenate([(mass0 * scale)[None], center0 + radius * t, inertia.reshape(-1)])

    def _split(self, numbers: Any) -> tuple[Any, Any, Any]:
        """The mass (), the centre and the inertia."""
        first = 1 + self.points
        return numbers[0], numbers[1:first], numbers[first:].reshape(self.moments)


def _upper(S: Array) -> Array:
    """The upper triangle V with S = V V^T, entry by entry: LAPACK would leave the lanes."""
    f = jnp.sqrt(S[2, 2])
    c, e = S[0, 2] / f, S[1, 2] / f
    d = jnp.sqrt(S[1, 1] - e * e)
    b = (S[0, 1] - c * e) / d
    a = jnp.sqrt(S[0, 0] - b * b - c * c)
    zero = jnp.zeros_like(a)
    return jnp.stack([jnp.stack([a, b, c]), jnp.stack([zero, d, e]), jnp.stack([zero, zero, f])])


@dataclass(frozen=True)
class BodyNames:
    """The names of the parameters that are the mass properties of a body.

    Attributes:
        body: name of the body.
        dimension: 2 in the plane, 3 in space.
        mass: of the mass; None if it is no parameter.
        points: of the centre of mass, of the whole array or of its entries.
        inertia: of the inertia; None if it is no parameter.
        others: the arguments that are no parameters, but would have to be.
    """

    body: str
    dimension: int
    mass: str | None
    points: tuple[str, ...]
    inertia: str | None
    others: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        """The names of all of them, in the order of `BodyInertia`.

        Raises:
            ValueError: if one of the numbers that belong together is not a parameter.
        """
        if self.others:
            verb = "is no parameter" if len(self.others) == 1 else "are no parameters"
            raise ValueError(
                f"Argument `free` names the body {self.body!r}, whose {', '.join(self.others)} "
                f'{verb} by name; give names, such as mass="m", in the body or by '
                '`from_mjcf(..., params=("mass", "center", "inertia"))`, or name single '
                "parameters in `free`."
            )
        return tuple(name for name in (self.mass, *self.points, self.inertia) if name is not None)


def bodies_of(system: System) -> dict[str, BodyNames]:
    """The rigid bodies of a mechanism by name; none of another system."""
    energy = system.plain.lagrangian
    if not isinstance(energy, EnergyDifference):
        return {}
    bodies: dict[str, BodyNames] = {}
    for body in energy.kinematics.bodies:
        if not isinstance(body, AbstractRigidBody):
            continue
        own, point = body.properties, body.properties.center
        values = {"mass": own.mass, "inertia": own.inertia}
        named = {key: value for key, value in values.items() if isinstance(value, str)}
        others = [key for key in values if key not in named]
        entries = (point,) if isinstance(point, str) else point if isinstance(point, tuple) else ()
        points = tuple(entry for entry in entries if isinstance(entry, str))
        is_known = point is None or (entries and all(isinstance(x, str | float) for x in entries))
        if own.static_moment is not None or not is_known:
            others.append("center")
        mass, inertia = named.get("mass"), named.get("inertia")
        dimension, lacking = body.dimension, tuple(others)
        bodies[body.name] = BodyNames(body.name, dimension, mass, points, inertia, lacking)
    return bodies
