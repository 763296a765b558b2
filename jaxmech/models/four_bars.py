"""N four-bar linkages in a row: parallel cranks and couplers, all collinear twice per turn.

        B0___1___B1___2___B2       cranks 0..N stand on the ground at A_i = (i l, 0),
         |       |        |        couplers 1..N join their upper ends B_i
       0 |     1 |      2 |
         |       |        |        every link: length l, mass m, centre (x, y), angle from x,
        A0      A1       A2        moment of inertia m l^2 / 12; gravity along -y

Coordinates: x, y [m] and angle [rad] of the 2 N + 1 links, the N + 1 cranks first, then couplers:
`crank0_x, crank0_y, crank0_angle, ..., coupler1_x, ...`.

    parameter   default   unit      meaning
    m           1         kg        mass of a link
    l           1         m         length of a link
    g           9.81      m/s^2     gravity

Constraints, two rows each, one per revolute joint: `A0` ... `AN` hold the foot of a crank to the
ground; `Bi_left` joins the head of crank i to the coupler on its left, `Bi_right` to the one on its
right.

Known facts (problem A02 of the IFToMM multibody benchmark library, "double four-bar" for N = 2):
- 6 N + 2 rows for 6 N + 3 coordinates: one degree of freedom. Where all links are collinear
  (angle 0 or pi) N of the rows depend on the others, and the links could leave the parallelogram:
  a solver without rank detection stops there or takes the wrong branch. For N = 2 the rank falls
  from 14 to 12. Exactly there the constraints admit several accelerations, and for N > 1 Gauss'
  principle picks one in which the cranks cease to be parallel: start in another state.
- The couplers stay level, so with psi = angle + pi/2, from the downward vertical,
  psi'' = -c sin(psi), c = ((N + 1)/2 + N) g / (((N + 1)/3 + N) l): a plain pendulum, and from the
  default start psi = 2 am(K - sqrt(E / 2) t | 2 c / E), E = 1/2 + 2 c.
- The energy is conserved; its error is the published measure of quality.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxmech.geometry import line
from jaxmech.models.model import Model, Values
from jaxmech.system import Holonomic, System

Vector = Float[Array, " n"]


def four_bars(bars: int = 2) -> Model:
    """Row of four-bar linkages (sketch and facts: `jaxmech.models.four_bars`).

    Start variables: angle [rad] of all cranks from the horizontal and omega = angle' [rad/s]. By
    default upright, the heads moving to the right at 1 m/s.

    Args:
        bars: number N of four-bars, at least 1.

    Raises:
        ValueError: if `bars` is not a positive integer.
    """
    if type(bars) is not int or bars < 1:
        raise ValueError(
            f"Argument `bars` must be a positive integer, but is {bars!r}; ask for at least 1."
        )
    links = [f"crank{i}" for i in range(bars + 1)] + [f"coupler{i}" for i in range(1, bars + 1)]
    return Model(
        name="four_bars",
        summary=f"{bars} four-bar linkages in a row, redundant when collinear",
        system=System(
            _lagrangian,
            [*_feet(bars), *_heads(bars)],
            coordinates={
                f"{link}_{c}": unit
                for link in links
                for c, unit in (("x", "m"), ("y", "m"), ("angle", "rad"))
            },
        ),
        params={"m": 1.0, "l": 1.0, "g": 9.81},
        start={"angle": jnp.pi / 2, "omega": -1.0},
        state=_Start(bars),
        geometry=_geometry,
    )


def _feet(bars: int) -> list[Holonomic]:
    return [Holonomic(_Foot(i), name=f"A{i}") for i in range(bars + 1)]


def _heads(bars: int) -> list[Holonomic]:
    """The joints B; coupler i is link number bars + i, from head i - 1 to head i."""
    joints = []
    for i in range(bars + 1):
        if i > 0:
            joints.append(Holonomic(_Head(i, bars + i, 0.5), name=f"B{i}_left"))
        if i < bars:
            joints.append(Holonomic(_Head(i, bars + i + 1, -0.5), name=f"B{i}_right"))
    return joints


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    m, l = p["m"], p["l"]  # noqa: E741
    kinetic = 0.5 * m * jnp.sum(v[0::3] ** 2 + v[1::3] ** 2 + (l**2 / 12) * v[2::3] ** 2)
    return kinetic - m * p["g"] * jnp.sum(q[1::3])


def _point(q: Vector, link: int, along: float, l: ArrayLike) -> Array:  # noqa: E741
    """The point of a link at a distance from its centre, as the fraction `along` of its length."""
    x, y, angle = q[3 * link], q[3 * link + 1], q[3 * link + 2]
    return jnp.stack([x + along * l * jnp.cos(angle), y + along * l * jnp.sin(angle)])


@dataclass(frozen=True)
class _Foot:
    crank: int

    def __call__(self, q: Vector, t: Array, p: Values) -> Array:
        x, y = _point(q, self.crank, -0.5, p["l"])
        return jnp.stack([x - self.crank * p["l"], y])


@dataclass(frozen=True)
class _Head:
    crank: int
    coupler: int
    along: float

    def __call__(self, q: Vector, t: Array, p: Values) -> Array:
        head = _point(q, self.crank, 0.5, p["l"])
        return head - _point(q, self.coupler, self.along, p["l"])


@dataclass(frozen=True)
class _Start:
    """All cranks at one angle, with level couplers."""

    bars: int

    def __call__(self, start: Values, p: Values) -> tuple[Vector, Vector]:
        angle, omega, l = start["angle"], start["omega"], p["l"]  # noqa: E741
        head = l * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        rate = l * omega * jnp.stack([-jnp.sin(angle), jnp.cos(angle)])
        q = [[i * l + head[0] / 2, head[1] / 2, angle] for i in range(self.bars + 1)]
        q += [[(i + 0.5) * l + head[0], head[1], 0.0] for i in range(self.bars)]
        v = [[rate[0] / 2, rate[1] / 2, omega]] * (self.bars + 1)
        v += [[rate[0], rate[1], 0.0]] * self.bars
        return jnp.array(q).ravel(), jnp.array(v).ravel()


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    links = q.size // 3
    ends = [[_point(q, k, along, p["l"]) for along in (-0.5, 0.5)] for k in range(links)]
    cranks = ends[: links // 2 + 1]
    names = [f"crank{i}" for i in range(len(cranks))]
    names += [f"coupler{i}" for i in range(1, len(cranks))]
    shapes = {name: line(*pair) for name, pair in zip(names, ends, strict=True)}
    feet = {f"A{i}": foot for i, (foot, _) in enumerate(cranks)}
    return {**shapes, **feet, **{f"B{i}": head for i, (_, head) in enumerate(cranks)}}
