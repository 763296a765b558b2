r"""Andrews' squeezing mechanism: seven rigid bodies, three closed loops, a motor, a stiff spring.

               B                  C
                o--._            /         body   joints   length
                 \   `--o D ~~~~~          1      O - P    rr      crank, driven by mom
          G       \ 3  /                   2      P - E    d       coupler
    5  __o__  4    \  /                    3      B - E    ss      rocker, carries D
 A _--`     `--___  \/                     4      E - G    e
  o_              `-o E-----2------o P     5      A - G    zt
    `--__     __--`             o-'        6      E - H    zf
   7     `-o-`  6              O  1        7      A - H    u
           H

O = (0, 0), A, B and C are fixed; four bodies meet in E; the spring is between D and C. No gravity.

Coordinates [rad]: beta (body 1), Theta (2, from body 1), gamma (3), Phi (4, from 5), delta (5),
Omega (6, from 7), eps (7).

    parameter                 unit      meaning
    m1 ... m7                 kg        masses
    i1 ... i7                 kg m^2    moments of inertia about the centres of mass
    xa, ya, xb, yb, xc, yc    m         fixed points A, B, C
    rr, d, ss, e, zt, zf, u   m         lengths between the joints
    ra, da, sa, sb, ea, ta,   m         where the centres of mass are
      tb, ua, ub, fa
    sc, sd                    m         where D is on body 3
    c0, l0                    N/m, m    stiffness and natural length of the spring
    mom                       N m       torque on body 1

`params["d"]` is the length of the coupler, not the coordinate delta. Default values: test set.

Constraints, two rows each: `rocker`: E reached along 1-2 is where body 3 has it; `upper`: the same
along 5-4; `lower`: the same along 7-6.

Known facts:
- One degree of freedom (7 coordinates, 6 rows of rank 6); energy minus mom beta is conserved.
- A standard problem of the Test Set for IVP Solvers (Bari) after Schiehlen, "Multibody Systems
  Handbook" (1990). Its multipliers have the opposite sign: M q'' = f - G^T lambda.
- The default start, at rest with Theta = 0, is the published one; after 0.03 s beta = 15.810771...,
  two and a half turns of the crank.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxmech.geometry import coil, line, outline
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Holonomic, System

Vector = Float[Array, " 7"]
Point = Float[Array, " 2"]

_DEFAULTS = {
    "m1": 0.04325, "m2": 0.00365, "m3": 0.02373, "m4": 0.00706,
    "m5": 0.0705, "m6": 0.00706, "m7": 0.05498,
    "i1": 2.194e-6, "i2": 4.41e-7, "i3": 5.255e-6, "i4": 5.667e-7,
    "i5": 1.169e-5, "i6": 5.667e-7, "i7": 1.912e-5,
    "xa": -0.06934, "ya": -0.00227, "xb": -0.03635, "yb": 0.03273, "xc": 0.014, "yc": 0.072,
    "rr": 0.007, "d": 0.028, "ss": 0.035, "e": 0.02, "zt": 0.04, "zf": 0.02, "u": 0.04,
    "ra": 0.00092, "da": 0.0115, "sa": 0.01874, "sb": 0.01043, "ea": 0.01421,
    "ta": 0.02308, "tb": 0.00916, "ua": 0.01228, "ub": 0.00449, "fa": 0.01421,
    "sc": 0.018, "sd": 0.02, "c0": 4530.0, "l0": 0.07785, "mom": 0.033,
}  # fmt: skip


def andrews() -> Model:
    """Andrews' squeezing mechanism (sketch and facts: `jaxmech.models.andrews`).

    Start variables: beta [rad], the angle of the crank, and its rate beta_rate [rad/s]. The loops
    are closed in closed form, in the assembly mode of the published problem, with the other angles
    between -pi and pi. Lengths for which a loop cannot close lead to NaN.
    """
    return Model(
        name="andrews",
        summary="Andrews' squeezing mechanism, seven bodies in three loops",
        system=System(
            _lagrangian,
            [
                Holonomic(_rocker, name="rocker"),
                Holonomic(_upper, name="upper"),
                Holonomic(_lower, name="lower"),
            ],
            force=_motor,
            coordinates=dict.fromkeys(
                ("beta", "Theta", "gamma", "Phi", "delta", "Omega", "eps"), "rad"
            ),
        ),
        params=dict(_DEFAULTS),
        start={"beta": -0.06171389001427645, "beta_rate": 0.0},
        state=_state,
        geometry=_geometry,
    )


def _rotated(angle: Array, x: ArrayLike, y: ArrayLike) -> Point:
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([x * c - y * s, x * s + y * c])


def _centres(q: Vector, p: Values) -> Float[Array, " 7 2"]:
    b, Th, g, Ph, d, Om, ep = q
    A, B = vector(p["xa"], p["ya"]), vector(p["xb"], p["yb"])
    return jnp.stack([
        _rotated(b, p["ra"], 0.0),
        _rotated(b, p["rr"], 0.0) - _rotated(b + Th, p["da"], 0.0),
        B + _rotated(g, p["sb"], -p["sa"]),
        A + _rotated(d, p["zt"], 0.0) - _rotated(Ph + d, 0.0, p["e"] - p["ea"]),
        A + _rotated(d, p["ta"], p["tb"]),
        A - _rotated(ep, 0.0, p["u"]) + _rotated(Om + ep, p["zf"] - p["fa"], 0.0),
        A - _rotated(ep, p["ub"], p["ua"]),
    ])  # fmt: skip


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    _, c = jax.jvp(lambda q: _centres(q, p), (q,), (v,))
    m = vector(*(p[f"m{k}"] for k in range(1, 8)))
    inertia = vector(*(p[f"i{k}"] for k in range(1, 8)))
    w = jnp.stack([v[0], v[0] + v[1], v[2], v[3] + v[4], v[4], v[5] + v[6], v[6]])
    kinetic = 0.5 * m @ (c[:, 0] ** 2 + c[:, 1] ** 2) + 0.5 * inertia @ w**2
    spring = vector(p["xb"] - p["xc"], p["yb"] - p["yc"]) + _rotated(q[2], p["sd"], -p["sc"])
    return kinetic - 0.5 * p["c0"] * (jnp.sqrt(spring @ spring) - p["l0"]) ** 2


def _motor(q: Vector, v: Vector, t: Array, p: Values) -> Vector:
    return vector(p["mom"], *[0.0] * 6)


def _crank_and_coupler(q: Vector, p: Values) -> Point:
    """The position of joint E, reached along bodies 1 and 2."""
    return _rotated(q[0], p["rr"], 0.0) - _rotated(q[0] + q[1], p["d"], 0.0)


def _rocker(q: Vector, t: Array, p: Values) -> Point:
    E = vector(p["xb"], p["yb"]) - _rotated(q[2], 0.0, p["ss"])
    return _crank_and_coupler(q, p) - E


def _upper(q: Vector, t: Array, p: Values) -> Point:
    G = vector(p["xa"], p["ya"]) + _rotated(q[4], p["zt"], 0.0)
    return _crank_and_coupler(q, p) - (G - _rotated(q[3] + q[4], 0.0, p["e"]))


def _lower(q: Vector, t: Array, p: Values) -> Point:
    H = vector(p["xa"], p["ya"]) - _rotated(q[6], 0.0, p["u"])
    return _crank_and_coupler(q, p) - (H + _rotated(q[5] + q[6], p["zf"], 0.0))


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    beta, rate = vector(start["beta"], start["beta_rate"])
    return jax.jvp(lambda beta: _closed(beta, p), (beta,), (rate,))


def _closed(beta: Array, p: Values) -> Vector:
    """All angles from that of the crank, with joints E, G and H as intersections of circles."""
    A, B = vector(p["xa"], p["ya"]), vector(p["xb"], p["yb"])
    crank = _rotated(beta, 1.0, 0.0)
    P = p["rr"] * crank
    E = _corner(P, B, p["d"], p["ss"])
    G = _corner(A, E, p["zt"], p["e"])
    H = _corner(E, A, p["zf"], p["u"])
    upper, lower = G - A, _quarter(H - A)
    return jnp.stack([
        beta,
        _angle(crank, P - E),
        _angle(vector(1.0, 0.0), _quarter(E - B)),
        _angle(upper, _quarter(E - G)),
        _angle(vector(1.0, 0.0), upper),
        _angle(lower, E - H),
        _angle(vector(1.0, 0.0), lower),
    ])  # fmt: skip


def _corner(P: Point, Q: Point, p: ArrayLike, q: ArrayLike) -> Point:
    """The point at distances p from P and q from Q, to the left of the line from P to Q."""
    chord = Q - P
    length2 = chord @ chord
    along = (p**2 - q**2 + length2) / (2 * length2)
    return P + along * chord + jnp.sqrt(p**2 / length2 - along**2) * _quarter(chord)


def _quarter(r: Point) -> Point:
    return jnp.stack([-r[1], r[0]])


def _angle(r: Point, s: Point) -> Array:
    return jnp.arctan2(r[0] * s[1] - r[1] * s[0], r @ s)


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Any]:
    O = jnp.zeros(2)  # noqa: E741
    A, B, C = (vector(p[f"x{k}"], p[f"y{k}"]) for k in "abc")
    P, E = _rotated(q[0], p["rr"], 0.0), _crank_and_coupler(q, p)
    D = B + _rotated(q[2], p["sd"], -p["sc"])
    G = A + _rotated(q[4], p["zt"], 0.0)
    H = A - _rotated(q[6], 0.0, p["u"])
    links = {"1": (O, P), "2": (P, E), "4": (E, G), "5": (A, G), "6": (E, H), "7": (A, H)}
    bodies = {f"body {name}": line(*ends) for name, ends in links.items()}
    dots = {"O": O, "A": A, "B": B, "C": C, "P": P, "D": D, "G": G, "H": H, "E": E}
    return {"body 3": outline(B, E, D), **bodies, "spring": coil(C, D, width=0.006), **dots}
