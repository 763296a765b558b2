"""`base_parameters`: the combinations of masses and inertias on which a motion depends.

The forces of a motion are Y phi with the inertial parameters phi and the `regressor` Y. Stacked for
random motions, its columns are independent but for those of parameters that have no effect, or
whose effect others have too (Gautier, "Numerical calculation of the base inertial parameters of
robots", Journal of Robotic Systems 8, 1991). Going through the columns from the ground outward,
those in the span of the columns before are left out, and their parameters phi_d join the others:

    Y phi = Y_b (phi_b + X phi_d),    Y_b X = Y_d

So what a body shares with the motion of the body before counts there, as in the closed form of
Gautier and Khalil ("Direct calculation of minimum set of inertial parameters of serial robots",
1990).

`impossible` warns of masses, inertias and sizes that no part can have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from textwrap import wrap
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.inference.formulas import independent
from jaxmech.identify.regressor import StandardParameters, motions, regressor, standard_parameters
from jaxmech.parts import (
    EnergyDifference,
    JointLoads,
    Mechanism,
    reads_parameters,
    require_possible,
)
from jaxmech.system import Params, System, in_rates
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_finite, require_kind, require_seed
from jaxmech.utils.precision import USE_FLOAT64


def impossible(system: System, params: Params) -> str:
    """A warning of the first part that cannot exist with these parameters, or an empty text.

    Example:
        >>> from jaxmech.parts import Mechanism, planar_body
        >>> rod = planar_body("rod", mass="m", inertia=1.0)
        >>> system = Mechanism([rod], params={"m": 1.0}).system
        >>> impossible(system, {"m": -0.5}).partition(":")[2].partition(".")[0]
        " body 'rod' must have zero or a positive number as `mass`, but has -0"
    """
    energy, loads = system.plain.lagrangian, system.loads
    if not (isinstance(energy, EnergyDifference) and isinstance(params, Mapping)):
        return ""
    bodies = filter(reads_parameters, energy.kinematics.bodies)
    joints = [joint for joint, _ in loads.joints] if isinstance(loads, JointLoads) else []
    known = {name: jax.tree.map(np.asarray, value) for name, value in params.items()}
    try:
        require_possible(bodies, filter(reads_parameters, joints), known)
    except ValueError as error:
        fault = str(error).rpartition(";")[0]
        return (
            f"Nothing has the fitted parameters: {fault[:1].lower()}{fault[1:]}. Give `bounds` "
            "such as (0, None), or for an inertia name the body in `free`, which keeps all its "
            "numbers possible."
        )
    return ""


_ZERO = 1e-11  # of the largest column, up to which a column has no effect
_NEW = 1e-8  # share of a column beyond the span of others from which it is independent
_ROUND_OFF = 1e-7  # of the largest term, up to which a term of a combination is left out
_ROWS = 3  # rows of the regressor for each parameter
_TIED = "\xa0"  # a space at which no line ends
_UNITS = ("kg", "kg m", "kg m^2")


@dataclass(frozen=True, eq=False, repr=False)
class BaseParameters:
    """The combinations of inertial parameters on which a motion depends; prints itself.

    The result of `base_parameters`.

    Attributes:
        names: names of the s inertial parameters, such as "forearm.Izz".
        matrix: the coefficients of the b combinations, shape (b, s), in which masses are in kg,
            static moments in kg m and inertias in kg m^2.
        leading: index of the parameter that comes first in each combination, with the coefficient
            1, shape (b,).
        params: the parameters of the mechanism for which the combinations hold.
        known: the inertial parameters that were treated as known, which are in no combination.
        standard: the inertial parameters as functions of those of the mechanism.
    """

    names: tuple[str, ...]
    matrix: HostArray
    leading: tuple[int, ...]
    params: Params
    known: tuple[str, ...]
    standard: StandardParameters

    @property
    def rank(self) -> int:
        """The number b of combinations."""
        return len(self.matrix)

    @property
    def formulas(self) -> tuple[str, ...]:
        """The combinations, such as "upper.I + 0.25 fore.m"."""
        pairs = zip(self.leading, self.matrix, strict=True)
        return tuple(_sum(self.names, k, row).replace(_TIED, " ") for k, row in pairs)

    @property
    def units(self) -> tuple[str, ...]:
        """The units of the combinations."""
        return tuple(_UNITS[self.standard.powers[k]] for k in self.leading)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The inertial parameters on which no motion depends."""
        used = np.any(self.matrix != 0, axis=0)
        pairs = zip(self.names, used, strict=True)
        return tuple(name for name, is_used in pairs if not is_used and name not in self.known)

    def inertial(self, params: Params = None) -> Float[Array, " s"]:
        """The inertial parameters for parameters of the mechanism, by default `params`."""
        return self.standard.values(self.params if params is None else params)

    def values(self, params: Params = None) -> Float[Array, " b"]:
        """The combinations for parameters of the mechanism, by default `params`; plain `jnp`."""
        return jnp.asarray(self.matrix) @ self.inertial(params)

    def __repr__(self) -> str:
        head = f"BaseParameters: {self.rank} combinations of {len(self.names)} inertial parameters"
        rows = zip(self.leading, self.matrix, np.asarray(self.values()), self.units, strict=True)
        lines = [
            f"{_sum(self.names, k, row)} = {f'{value:.5g} {unit}'.replace(' ', _TIED)}"
            for k, row, value, unit in rows
        ]
        if self.without_effect:
            lines.append(f"without effect: {', '.join(self.without_effect)}")
        if self.known:
            lines.append(f"known: {', '.join(self.known)}")
        wrapped = [
            row for line in lines for row in wrap(f"  {line}", 100, subsequent_indent=" " * 6)
        ]
        return "\n".join([head, *wrapped]).replace(_TIED, " ")


def base_parameters(
    mechanism: Mechanism,
    q: Any = None,
    t: float | int = 0.0,
    params: Params = None,
    *,
    known: Sequence[str] | Literal["zeros"] = (),
    seed: int = 0,
) -> BaseParameters:
    """Find the combinations of masses, static moments and inertias on which a motion depends.

    A fit can determine no more than these, from forces in the joints or from motions under known
    forces. For a body in space they may contain Ixx, Iyy, Izz, Ixy, Ixz, Iyz, the entries of its
    inertia matrix, mx, my, mz, mass times centre of mass, and m; for a body in the plane I, mx, my
    and m. They refer to the axes of the body, and to the point of the joint that connects it to the
    previous body. Rotors of joints are included.

    Args:
        mechanism: the mechanism.
        q: a pose, shape (n,), which determines in which of its possible forms each loop is.
            Mechanisms without loops need none.
        t: time [s].
        params: parameters such as lengths and gravity; by default those of the mechanism.
        known: inertial parameters that are known, by name; "zeros" for all that are zero.
        seed: seed of the random motions.

    Raises:
        TypeError: if `mechanism` is not a `Mechanism`.
        ValueError: if there is a loop and no pose, a name is unknown, the mechanism has no degree
            of freedom, or single precision is in use.

    Example:
        >>> from jaxmech.parts import gravity, ground, planar_body, revolute
        >>> upper = planar_body("upper", mass=2.0, inertia=0.1, center=(0.2, 0.0))
        >>> fore = planar_body("fore", mass=1.0, inertia=0.05, center=(0.15, 0.0))
        >>> shoulder = revolute("shoulder", ground, (0, 0), upper, (0, 0))
        >>> elbow = revolute("elbow", upper, (0.5, 0), fore, (0, 0))
        >>> arm = Mechanism([upper, fore], [shoulder, elbow], [gravity(9.81)])
        >>> base_parameters(arm, known="zeros")
        BaseParameters: 4 combinations of 8 inertial parameters
          upper.I + 0.25 fore.m = 0.43 kg m^2
          upper.mx + 0.5 fore.m = 0.9 kg m
          fore.I = 0.0725 kg m^2
          fore.mx = 0.15 kg m
          without effect: upper.m
          known: upper.my, fore.my
    """
    require_kind("mechanism", mechanism, Mechanism, "Mechanism(...) or robot.mechanism")
    require_seed(seed)
    if not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "What depends on what is not seen in single precision: columns that depend on each "
            f"other differ by round-off; {USE_FLOAT64}."
        )
    params = dict(mechanism.params) if params is None else params
    if q is not None:
        require_finite(q=q)
    result = base_of(mechanism, q, float(t), params, known, seed)
    assert result is not None
    return result


def base_of(
    subject: Mechanism | System,
    q: Any,
    t: float,
    params: Params,
    known: Sequence[str] | Literal["zeros"] = (),
    seed: int = 0,
) -> BaseParameters | None:
    """The same for a mechanism or its system; None for a system without bodies.

    Raises:
        ValueError: as `base_parameters`.
    """
    system = subject.system if isinstance(subject, Mechanism) else subject
    standard = standard_parameters(system, params)
    if standard is None:
        return None
    plain = in_rates(system, params)
    pose = _checked_pose(plain, standard, q)
    fixed = _checked_known(standard, known, params, t)
    count, draw = 2 + _ROWS * len(standard.names), np.random.default_rng(seed)
    drawn = motions(plain, standard.kinematics, pose, t, params, count, draw)
    rows, sizes = regressor(standard, drawn, t, params)
    free = [k for k in range(len(standard.names)) if standard.names[k] not in fixed]
    leading, matrix = _grouped(rows, free)
    matrix = matrix * sizes / sizes[leading][:, None]
    return BaseParameters(standard.names, matrix, tuple(leading), params, fixed, standard)


def _grouped(rows: HostArray, free: Sequence[int]) -> tuple[list[int], HostArray]:
    """The leading column of each combination, and the coefficients of all columns, (b, s)."""
    triangle = np.linalg.qr(rows)[1]
    lengths = np.linalg.norm(triangle, axis=0)
    effective = [k for k in free if lengths[k] > _ZERO * lengths.max()]
    count = len(effective)
    leading = independent(effective, lambda k: triangle[:, k], count, least=_NEW)
    others = [k for k in effective if k not in leading]
    matrix = np.zeros((len(leading), rows.shape[1]))
    matrix[range(len(leading)), leading] = 1.0
    if others and leading:
        X = np.linalg.lstsq(triangle[:, leading], triangle[:, others], rcond=None)[0]
        matrix[:, others] = np.where(np.abs(X) > _ROUND_OFF * np.abs(X).max(0), X, 0.0)
    return leading, matrix


def _checked_pose(system: System, standard: StandardParameters, q: Any) -> HostArray | None:
    """The pose from which loops are moved; None where any pose will do."""
    units = [f"{norm.name}.unit" for norm in standard.kinematics.norms]
    closing = [c.name for c in system.constraints if c.name not in units]
    if not closing:
        return None
    n = len(standard.kinematics.coordinates)
    if q is None:
        raise ValueError(
            f"Argument `q` must be a pose of the mechanism, which has the constraints "
            f"{', '.join(closing)}: in another form other combinations may count; take it from "
            "`assemble`."
        )
    pose = np.asarray(q, float)
    if pose.shape not in ((n,), (system.n,)):
        raise ValueError(f"Argument `q` must have shape ({n},), but has shape {pose.shape}.")
    return pose[:n]


def _checked_known(
    standard: StandardParameters, known: Sequence[str] | str, params: Params, t: float
) -> tuple[str, ...]:
    names = standard.names
    if known == "zeros":
        values = np.abs(np.asarray(standard.values(params, t)))
        kinds = standard.powers
        largest = np.array([values[kinds == kind].max() for kind in kinds])
        return tuple(compress(names, values <= _ROUND_OFF**2 * largest))
    for name in known:
        if name not in names:
            raise ValueError(
                f'Argument `known` must be "zeros" or hold names out of {", ".join(names)}, but '
                f"has {name!r}."
            )
    return tuple(known)


def _sum(names: Sequence[str], leading: int, coefficients: HostArray) -> str:
    """A sum such as "a + 0.5 b - c", the leading name first; its terms are not to be broken."""
    order = [leading, *(k for k in np.flatnonzero(coefficients).tolist() if k != leading)]
    text = ""
    for k in order:
        sign = " - " if coefficients[k] < 0 else " + "
        size = f"{abs(coefficients[k]):.4g}"
        text += (sign if text else "") + ("" if size == "1" else size + _TIED) + names[k]
    return text
