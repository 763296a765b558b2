"""Independent sympy versions of the models: Lagrangian, constraints, force.

Each function takes the symbols (q, v, t, p) and returns (L, phi, psi, force).
"""

from collections.abc import Callable
from typing import Any

import sympy as sp
from sympy import cos, sin

Written = tuple[sp.Expr, list[sp.Expr], list[sp.Expr], list[sp.Expr] | None]


def pendulum(q: Any, v: Any, t: Any, p: Any) -> Written:
    (x1, x2), (u1, u2) = q, v
    L = p["m"] * (u1**2 + u2**2) / 2 - p["m"] * p["g"] * x2
    return L, [(x1**2 + x2**2 - p["l"] ** 2) / 2], [], None


def double_pendulum(q: Any, v: Any, t: Any, p: Any) -> Written:
    (x1, y1, x2, y2), (u1, w1, u2, w2) = q, v
    m1, m2 = p["m1"], p["m2"]
    T = m1 * (u1**2 + w1**2) / 2 + m2 * (u2**2 + w2**2) / 2
    V = m1 * p["g"] * y1 + m2 * p["g"] * y2
    rod1 = (x1**2 + y1**2 - p["l1"] ** 2) / 2
    rod2 = ((x2 - x1) ** 2 + (y2 - y1) ** 2 - p["l2"] ** 2) / 2
    return T - V, [rod1, rod2], [], None


def double_pendulum_angles(q: Any, v: Any, t: Any, p: Any) -> Written:
    """The equations from the positions of the masses, down and across as in the lecture."""
    th1, th2 = q
    down1, across1 = p["l1"] * cos(th1), p["l1"] * sin(th1)
    down2, across2 = down1 + p["l2"] * cos(th1 + th2), across1 + p["l2"] * sin(th1 + th2)
    speed2 = [_rate(x, q, v) ** 2 + _rate(y, q, v) ** 2
              for x, y in ((down1, across1), (down2, across2))]  # fmt: skip
    T = (p["m1"] * speed2[0] + p["m2"] * speed2[1]) / 2
    return T + p["g"] * (p["m1"] * down1 + p["m2"] * down2), [], [], None


def chain(q: Any, v: Any, t: Any, p: Any) -> Written:
    L, phi, x0, y0 = sp.Integer(0), [], 0, 0
    for k, (m, l) in enumerate(zip(p["m"], p["l"], strict=True)):  # noqa: E741
        x, y = q[2 * k], q[2 * k + 1]
        L += m * (v[2 * k] ** 2 + v[2 * k + 1] ** 2) / 2 - m * p["g"] * y
        phi.append(((x - x0) ** 2 + (y - y0) ** 2 - l**2) / 2)
        x0, y0 = x, y
    return L, phi, [], None


def bead_on_parabola(q: Any, v: Any, t: Any, p: Any) -> Written:
    L = p["m"] * (v[0] ** 2 + v[1] ** 2) / 2 - p["m"] * p["g"] * q[1]
    return L, [q[1] - q[0] ** 2], [], None


def bead_on_rod(q: Any, v: Any, t: Any, p: Any) -> Written:
    x1, x2, x3 = q
    L = p["m"] * (v[0] ** 2 + v[1] ** 2) / 2
    return L, [x1 - x3 * cos(p["omega"] * t), x2 - x3 * sin(p["omega"] * t)], [], None


def particle_on_curve(q: Any, v: Any, t: Any, p: Any) -> Written:
    x1, x2, x3 = q
    L = p["m"] * sum(u**2 for u in v) / 2 - p["k"] * sum(x**2 for x in q) / 2
    return L, [x1 * x2 * x3 - p["c1"], x1 + x2 - p["c2"]], [], None


def rolling_wheel(q: Any, v: Any, t: Any, p: Any) -> Written:
    m, R, theta = p["m"], p["R"], q[3]
    dx, dy, dphi, dtheta = v
    T = m * (dx**2 + dy**2) / 2 + (m * R**2 / 2) * dphi**2 / 2 + (m * R**2 / 4) * dtheta**2 / 2
    return T, [], [dx + R * dphi * cos(theta), dy - R * dphi * sin(theta)], None


def chaplygin_sleigh(q: Any, v: Any, t: Any, p: Any) -> Written:
    x, y, th = q
    cx, cy = x + p["a"] * cos(th), y + p["a"] * sin(th)
    T = p["m"] * (_rate(cx, q, v) ** 2 + _rate(cy, q, v) ** 2) / 2 + p["I"] * v[2] ** 2 / 2
    return T, [], [-v[0] * sin(th) + v[1] * cos(th)], None


def free_body(q: Any, v: Any, t: Any, p: Any) -> Written:
    e0, e1, e2, e3 = q
    d0, d1, d2, d3 = v
    w1 = 2 * (e0 * d1 - e1 * d0 - e2 * d3 + e3 * d2)
    w2 = 2 * (e0 * d2 - e2 * d0 - e3 * d1 + e1 * d3)
    w3 = 2 * (e0 * d3 - e3 * d0 - e1 * d2 + e2 * d1)
    L = sum(J * w**2 for J, w in zip(p["J"], (w1, w2, w3), strict=True)) / 2
    return L, [(e0**2 + e1**2 + e2**2 + e3**2 - 1) / 2], [], None


def four_bars(q: Any, v: Any, t: Any, p: Any) -> Written:
    """Two four-bars: links 0, 1, 2 are the cranks, 3 and 4 the couplers."""
    m, l, g = p["m"], p["l"], p["g"]  # noqa: E741
    L = sp.Integer(0)
    for k in range(5):
        dx, dy, rate = v[3 * k : 3 * k + 3]
        L += m * (dx**2 + dy**2) / 2 + m * l**2 / 12 * rate**2 / 2 - m * g * q[3 * k + 1]

    def end(link: int, sign: int) -> sp.Matrix:
        x, y, angle = q[3 * link : 3 * link + 3]
        return sp.Matrix([x + sign * l / 2 * cos(angle), y + sign * l / 2 * sin(angle)])

    feet = [end(i, -1) - sp.Matrix([i * l, 0]) for i in range(3)]
    heads = [
        end(0, 1) - end(3, -1),
        end(1, 1) - end(3, 1),
        end(1, 1) - end(4, -1),
        end(2, 1) - end(4, 1),
    ]
    return L, [row for joint in feet + heads for row in joint], [], None


def andrews(q: Any, v: Any, t: Any, p: Any) -> Written:
    """The equations component by component, as in the reference solution."""
    (b, Th, g, Ph, d, Om, ep), s = q, p
    x_arm, y_arm = (s["rr"] * f(b) - s["d"] * f(b + Th) for f in (cos, sin))
    k, h = s["e"] - s["ea"], s["zf"] - s["fa"]
    x = [
        s["ra"] * cos(b),
        s["rr"] * cos(b) - s["da"] * cos(b + Th),
        s["xb"] + s["sa"] * sin(g) + s["sb"] * cos(g),
        s["xa"] + s["zt"] * cos(d) + k * sin(Ph + d),
        s["xa"] + s["ta"] * cos(d) - s["tb"] * sin(d),
        s["xa"] + s["u"] * sin(ep) + h * cos(Om + ep),
        s["xa"] + s["ua"] * sin(ep) - s["ub"] * cos(ep),
    ]
    y = [
        s["ra"] * sin(b),
        s["rr"] * sin(b) - s["da"] * sin(b + Th),
        s["yb"] - s["sa"] * cos(g) + s["sb"] * sin(g),
        s["ya"] + s["zt"] * sin(d) - k * cos(Ph + d),
        s["ya"] + s["ta"] * sin(d) + s["tb"] * cos(d),
        s["ya"] - s["u"] * cos(ep) + h * sin(Om + ep),
        s["ya"] - s["ua"] * cos(ep) - s["ub"] * sin(ep),
    ]
    rates = (v[0], v[0] + v[1], v[2], v[3] + v[4], v[4], v[5] + v[6], v[6])
    T = sum(
        s[f"m{i}"] * (_rate(x, q, v) ** 2 + _rate(y, q, v) ** 2) / 2 + s[f"i{i}"] * w**2 / 2
        for i, (x, y, w) in enumerate(zip(x, y, rates, strict=True), start=1)
    )
    Dx = s["xb"] + s["sc"] * sin(g) + s["sd"] * cos(g)
    Dy = s["yb"] + s["sd"] * sin(g) - s["sc"] * cos(g)
    stretch = sp.sqrt((Dx - s["xc"]) ** 2 + (Dy - s["yc"]) ** 2) - s["l0"]
    phi = [
        x_arm - s["ss"] * sin(g) - s["xb"],
        y_arm + s["ss"] * cos(g) - s["yb"],
        x_arm - s["e"] * sin(Ph + d) - s["zt"] * cos(d) - s["xa"],
        y_arm + s["e"] * cos(Ph + d) - s["zt"] * sin(d) - s["ya"],
        x_arm - s["zf"] * cos(Om + ep) - s["u"] * sin(ep) - s["xa"],
        y_arm - s["zf"] * sin(Om + ep) + s["u"] * cos(ep) - s["ya"],
    ]
    return T - s["c0"] * stretch**2 / 2, phi, [], [s["mom"], 0, 0, 0, 0, 0, 0]


WRITTEN: dict[str, Callable[..., Written]] = {
    f.__name__: f
    for f in (
        pendulum, double_pendulum, double_pendulum_angles, chain, bead_on_parabola, bead_on_rod,
        particle_on_curve, rolling_wheel, chaplygin_sleigh, four_bars, free_body, andrews,
    )
}  # fmt: skip


def _rate(f: sp.Expr, q: Any, v: Any) -> sp.Expr:
    return sum(sp.diff(f, x) * u for x, u in zip(q, v, strict=True))
