r"""Hanging chain: n point masses on n massless rods, Cartesian coordinates.

         y ^
           |
           o----> x
            \ l_1, theta_1        every angle from the downward vertical, counter-clockwise
             o m_1
              \ l_2, theta_2      x_k = x_(k-1) + l_k sin(theta_k)
               o m_2              y_k = y_(k-1) - l_k cos(theta_k)
               :
               o m_n              gravity along -y

Coordinates: x1, y1, x2, y2, ..., xn, yn [m].

    parameter   default       unit      meaning
    m           (1, ..., 1)   kg        masses, shape (n,)
    l           (1, ..., 1)   m         lengths of the rods, shape (n,)
    g           9.81          m/s^2     gravity

Constraint `rods`, n rows, halved so that a row of A holds the vectors along its rod:
((x_k - x_(k-1))^2 + (y_k - y_(k-1))^2 - l_k^2) / 2 = 0. The multiplier is -tension / length.

Known facts:
- n degrees of freedom (2n coordinates, n independent constraints); the energy is conserved. One
  link is the pendulum, two are the double pendulum.
- Small oscillations of equal links have the frequencies omega_k^2 = (g / l) x_k, where x_k are the
  zeros of the Laguerre polynomial L_n.
- Three links of 1 m and 1 kg, from theta = (1.8, 2.2, -1.0) with omega = (0, 0.5, 0): after 4 s
  theta = (2.96040145892062, -1.20755828799489, -0.07837958843971), by extrapolation in 80-bit
  arithmetic, good to 1e-12.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.geometry import line
from jaxmech.models.model import Model, Values
from jaxmech.system import Holonomic, System

Vector = Float[Array, " n"]


def chain(links: int = 10) -> Model:
    """Chain of point masses on rods (sketch and facts: `jaxmech.models.chain`).

    Start variables, both of shape (links,): theta [rad], the angles of the rods from the downward
    vertical, and omega [rad/s], their rates. By default a straight horizontal chain at rest.

    Args:
        links: number of rods and of masses, at least 1.

    Raises:
        ValueError: if `links` is not a positive integer.
    """
    if type(links) is not int or links < 1:
        raise ValueError(
            f"Argument `links` must be a positive integer, but is {links!r}; ask for at least 1."
        )
    return Model(
        name="chain",
        summary=f"{links} point masses on {links} rods, Cartesian coordinates",
        system=System(
            _lagrangian,
            [Holonomic(_rods, name="rods")],
            coordinates={f"{axis}{k}": "m" for k in range(1, links + 1) for axis in "xy"},
        ),
        params={"m": np.ones(links), "l": np.ones(links), "g": 9.81},
        start={"theta": np.full(links, np.pi / 2), "omega": np.zeros(links)},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    m = jnp.asarray(p["m"])
    return 0.5 * m @ (v[::2] ** 2 + v[1::2] ** 2) - p["g"] * m @ q[1::2]


def _rods(q: Vector, t: Array, p: Values) -> Array:
    masses = q.reshape(-1, 2)
    rods = masses - jnp.concatenate([jnp.zeros_like(masses[:1]), masses[:-1]])
    return (rods[:, 0] ** 2 + rods[:, 1] ** 2 - p["l"] ** 2) / 2


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    theta, l, omega = jnp.asarray(start["theta"]), p["l"], start["omega"]  # noqa: E741
    sine, cosine = jnp.sin(theta), jnp.cos(theta)
    q = jnp.cumsum(jnp.stack([l * sine, -l * cosine], axis=-1), axis=0)
    v = jnp.cumsum(jnp.stack([l * omega * cosine, l * omega * sine], axis=-1), axis=0)
    return q.ravel(), v.ravel()


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    pivot, masses = jnp.zeros(2), q.reshape(-1, 2)
    dots = {f"mass{k}": mass for k, mass in enumerate(masses, 1)}
    return {"rods": line(pivot, *masses), "pivot": pivot, **dots}
