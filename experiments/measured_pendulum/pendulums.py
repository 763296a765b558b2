r"""The measured pendulums: one, two or three arms, in their angles or as bodies with pins.

               o pivot          phi_k from upright, clockwise; pi is hanging
           a1  |\
    centre 1   | x
               |  \
           L1     o elbow       friction: hinge k on w_k - w_(k-1), air on w_k
             a2  /
    centre 2    x

    T = sum_jk S_jk w_j w_k cos(phi_j - phi_k) / 2 + sum_k I_k w_k^2 / 2,   V = sum_j G_j cos(phi_j)
    S_jk = sum_i m_i l_ij l_ik,  G_j = g sum_i m_i l_ij,   l_ij = L_j, a_j, 0 for j <, =, > i

    parameter   unit      meaning
    m, I        kg, kg m2 mass, and moment of inertia about the centre of mass
    a           m         from the hinge of an arm to its centre of mass
    L           m         from the hinge of an arm to that of the next one
    g           m/s^2     gravity
    zero        rad       reading of an encoder at phi = 0
    lag         s         delay of the recorded rates
    ...                   parameters of the friction law

All but g and lag end in the number of their arm, or in nothing for the single pendulum.

A swing determines the sums S + I and G only up to a factor: of a single pendulum m g a / J, with
J = m a^2 + I, so that one of m, a, I and g can be fitted, and I is the only one that cannot be
measured with a scale or a ruler. Of two arms there are five sums, of which four parameters can be
fitted, of three arms eight and seven. The others are kept as the authors estimated them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmech as jm
from experiments.measured_pendulum.friction import Law, Params
from jaxmech.identify.fit import Identifiable

Coordinates = Literal["angles", "bodies"]
COORDINATES: tuple[Coordinates, ...] = ("angles", "bodies")
State = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Pendulum:
    """A pendulum as its authors describe it.

    Attributes:
        arms: the suffixes of the arms in the names of parameters.
        estimate: the names of the numbers in the file.
        authors: the published estimate, without friction.
        fitted: those of these that are fitted.
    """

    arms: tuple[str, ...]
    estimate: str
    authors: dict[str, float]
    fitted: tuple[str, ...]

    def published(self, values: Any) -> dict[str, float]:
        """The authors' estimate by name, from the numbers of the file."""
        return dict(zip(self.estimate.split(), np.asarray(values, float).tolist(), strict=True))


PENDULUMS = {
    "single": Pendulum(
        ("",),
        "a m I k g",
        {"a": 1.47754901e-1, "m": 1.47584572e-1, "I": 1.09118505e-4, "g": 9.81001310},
        ("I",),
    ),
    "double": Pendulum(
        ("1", "2"),
        "m1 m2 a1 a2 L1 I1 I2 k1 k2 g",
        {
            "m1": 9.38439748e-2, "m2": 1.37595970e-1, "a1": 1.08565215e-1, "a2": 1.16779018e-1,
            "L1": 1.72719204e-1, "I1": 4.37529430e-4, "I2": 1.26882939e-3, "g": 9.80858023,
        },
        ("a1", "L1", "I1", "I2"),
    ),
    "triple": Pendulum(
        ("1", "2", "3"),
        "m1 m2 m3 a1 a2 a3 L1 L2 I1 I2 I3 k1 k2 k3 g",
        {
            "m1": 2.58171998e-1, "m2": 2.79427783e-1, "m3": 1.18624232e-1, "a1": 1.59999928e-1,
            "a2": 2.02939213e-1, "a3": 1.83708742e-1, "L1": 1.72799737e-1, "L2": 2.28700000e-1,
            "I1": 1.00043469e-4, "I2": 3.14159516e-4, "I3": 1.68739037e-4, "g": 9.80834384,
        },
        ("a1", "a2", "L1", "L2", "I1", "I2", "I3"),
    ),
}  # fmt: skip


class Rig(NamedTuple):
    """A pendulum with its sensors and a friction law.

    Attributes:
        subject: the argument of `fit`: the system, the angles measured by the encoders [rad], the
            state for recorded angles and rates, the parameters of the authors, and the free ones.
        acceleration: acceleration(q, w, params) of the angles.
    """

    subject: Identifiable
    acceleration: Callable[[Array, Array, Params], Array]


@lru_cache
def rig(name: str, law: str, coordinates: Coordinates = "angles") -> Rig:
    """Make a pendulum with a friction law, in "angles" or as "bodies"."""
    pendulum, found = PENDULUMS[name], Law(law)
    arms = pendulum.arms

    def friction(w: Array, p: Params) -> Array:
        """The friction torques on all angles."""
        before = jnp.concatenate([jnp.zeros(1, w.dtype), w[:-1]])
        hinges = jnp.stack(
            [found.hinge(x, p, arm) for x, arm in zip(w - before, arms, strict=True)]
        )
        airs = jnp.stack([found.air(x, p, arm) for x, arm in zip(w, arms, strict=True)])
        return -hinges + jnp.concatenate([hinges[1:], jnp.zeros(1, w.dtype)]) - airs

    def numbers(p: Params, kind: str) -> Array:
        return jnp.stack([jnp.asarray(p[kind + arm]) for arm in arms])

    def levers(p: Params) -> Array:
        """The distances l_ij, shape (arms, arms)."""
        rows = [
            [p["L" + arm] for arm in arms[:k]] + [p["a" + arms[k]]] + [0.0] * (len(arms) - k - 1)
            for k in range(len(arms))
        ]
        return jnp.stack([jnp.stack([jnp.asarray(x) for x in row]) for row in rows])

    def sums(p: Params) -> tuple[Array, Array]:
        """S, shape (arms, arms), and G."""
        m, l = numbers(p, "m"), levers(p)  # noqa: E741
        S = (m[:, None, None] * l[:, :, None] * l[:, None, :]).sum(0)
        return S, p["g"] * (m[:, None] * l).sum(0)

    def acceleration(q: Array, w: Array, p: Params) -> Array:
        S, G = sums(p)
        between = q[:, None] - q[None]
        M = S * jnp.cos(between) + jnp.diag(numbers(p, "I"))
        return eliminated(M, G * jnp.sin(q) - (S * jnp.sin(between)) @ w**2 + friction(w, p))

    def lagrangian_of_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
        S, G = sums(p)
        M = S * jnp.cos(q[:, None] - q[None]) + jnp.diag(numbers(p, "I"))
        return (v[:, None] * M * v[None]).sum() / 2 - (G * jnp.cos(q)).sum()

    def lagrangian_of_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
        (x, y, spin), m = v.reshape(-1, 3).T, numbers(p, "m")
        kinetic = (m * (x**2 + y**2) + numbers(p, "I") * spin**2).sum() / 2
        return kinetic - p["g"] * (m * q[1::3]).sum()

    def pins(q: Array, t: Array, p: Params) -> Array:
        """The gap in each hinge."""
        hinge, gaps = jnp.zeros(2), []
        for k, arm in enumerate(arms):
            centre, along = q[3 * k : 3 * k + 2], direction(q[3 * k + 2])
            gaps.append(centre - p["a" + arm] * along - hinge)
            if arm != arms[-1]:
                hinge = centre + (p["L" + arm] - p["a" + arm]) * along
        return jnp.concatenate(gaps)

    def start_angles(q0: Array, v0: Array, p: Params) -> State:
        """Angles and rates from recorded ones.

        The recorded rates are differences of recorded angles, and lag behind: to first order
        v0 = w - lag w'.
        """
        q = q0 - numbers(p, "zero")
        return q, v0 + p["lag"] * acceleration(q, v0, p)

    def start_bodies(q0: Array, v0: Array, p: Params) -> State:
        q, w = start_angles(q0, v0, p)
        places = levers(p) @ direction(q).T
        rates = levers(p) @ (w[None] * jnp.stack([jnp.cos(q), -jnp.sin(q)])).T
        return (
            jnp.concatenate([places, q[:, None]], axis=1).ravel(),
            jnp.concatenate([rates, w[:, None]], axis=1).ravel(),
        )

    if coordinates == "angles":
        system = jm.System(
            lagrangian_of_angles,
            force=lambda q, v, t, p: friction(v, p),
            coordinates={f"phi{arm}": "rad" for arm in arms},
        )
        observe, start = lambda q, v, t, p: q + numbers(p, "zero"), start_angles
    else:
        units = {"x": "m", "y": "m", "phi": "rad"}
        system = jm.System(
            lagrangian_of_bodies,
            [jm.Holonomic(pins, name="pins")],
            force=lambda q, v, t, p: jnp.zeros_like(v).at[2::3].set(friction(v[2::3], p)),
            coordinates={f"{name}{arm}": unit for arm in arms for name, unit in units.items()},
        )
        observe, start = lambda q, v, t, p: q[2::3] + numbers(p, "zero"), start_bodies
    sensors = {**{f"zero{arm}": 0.0 for arm in arms}, "lag": 0.0}
    subject = Identifiable(
        system,
        {**pendulum.authors, **found.start(arms), **sensors},
        observe,
        start,
        free=(*pendulum.fitted, *found.start(arms), *sensors),
        bounds={**dict.fromkeys(pendulum.fitted, (0.0, None)), **found.bounds(arms)},
    )
    return Rig(subject, acceleration)


def direction(angle: Array) -> Array:
    """The unit vector along an arm (x, y): 0 is upright, pi is hanging."""
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)])


def eliminated(M: Array, y: Array) -> Array:
    """The solution of M x = y for one to three unknowns, written out."""
    if y.size == 1:
        return y / M[0]
    factor = M[1:, 0] / M[0, 0]
    rest = eliminated(M[1:, 1:] - factor[:, None] * M[:1, 1:], y[1:] - factor * y[0])
    return jnp.concatenate([(y[:1] - M[0, 1:] @ rest) / M[0, 0], rest])
