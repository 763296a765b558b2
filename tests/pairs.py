"""A cart with up to eight things that act on it, and its motion in exact pieces.

Between any two changes the load of the cart is a linear function of time, so its position is a
cubic one, whose next change is a root.
"""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmech as jm

FEATURES = ("gap", "friction", "controller", "event", "switch", "state", "quasi", "input")
START, END = (0.22, -0.7, -0.1), 1.0  # position, velocity, state; time
PERIOD, LIMIT, BOUNCE, LEVEL, RATE = 0.1, 0.15, 0.5, 0.16, 0.8
LOCKED = (0.52, 0.71)
HOLD = np.array([0.0, 0.23, 0.61, 0.87]), np.array([0.3, -0.9, 0.8, -1.6])
RAMP = np.array([0.0, 0.36, 1.0]), np.array([0.0, 0.7, -0.4])
SAVES = np.linspace(0.0, END, 6)


def push(measured: Any, memory: Any, t: Any, p: Any) -> Any:
    x, rate = measured
    return -4.0 * (x - 0.1) - rate, memory


class Cart:
    """A system with some of the features, and the arguments of its runs."""

    def __init__(self, features: Iterable[str]) -> None:
        has = set(features)
        self.has, self.params = has, {"F": -1.0}
        per_rate = 0.5 if "quasi" in has else 1.0
        constraints: list[Any] = []
        if "gap" in has:
            constraints.append(jm.Unilateral(lambda q, t, p: q[0], BOUNCE, name="stop"))
        if "friction" in has:
            constraints.append(jm.DryFriction(lambda q, v, t, p: v[0], LIMIT, name="rub"))
        if "switch" in has:
            constraints.append(jm.Nonholonomic(lambda q, v, t, p: v[0], "lock"))

        def force(q: Any, v: Any, t: Any, p: Any) -> Any:
            load = p["F"]
            if "input" in has:
                load += p["hold"](t) + p["ramp"](t)
            if "controller" in has:
                load += p["push"]
            if "state" in has:
                load += v[1]
            return jnp.stack([load])

        further: dict[str, Any] = {}
        if "state" in has:
            further |= {"states": ("z",), "rates": lambda q, v, t, p: RATE}
        if "quasi" in has:
            further |= {"velocities": ("half",), "kinematics": lambda q, t, p: jnp.array([[2.0]])}
        self.system = jm.System(
            lambda q, v, t, p: v[0] ** 2 / 2, constraints, force, coordinates=("x",), **further
        )
        if "controller" in has:
            # It is given the velocities of a solution.
            measure = lambda q, v, t, p: (q[0], v[0] / per_rate)  # noqa: E731
            self.system = jm.controlled(self.system, jm.Controller(push, PERIOD, measure=measure))
        if "input" in has:
            self.params |= {"hold": jm.Signal(*HOLD, "hold"), "ramp": jm.Signal(*RAMP)}
        x, v, z = START
        self.q0 = np.array([x, 0.0] if "state" in has else [x])
        self.v0 = np.array([v * per_rate, z] if "state" in has else [v * per_rate])
        self.per_rate = per_rate
        events: list[jm.Event] = []
        if "event" in has:
            slower = jm.Transition(fn=lambda q, v, t, p: (q, v - 0.5 * jnp.eye(v.size)[0] * v))
            events.append(
                jm.Event(lambda q, v, t, p: q[0] - LEVEL, -1, transition=slower, name="hit")
            )
        if "switch" in has:
            for t, change in zip(LOCKED, ({"on": "lock"}, {"off": "lock"}), strict=True):
                moment = lambda q, v, t, p, at=t: t - at  # noqa: E731
                transition = jm.Transition(**change)
                events.append(jm.Event(moment, 1, transition=transition, name=f"at {t}"))
        self.ways: dict[str, Any] = {"events": events} if events else {}
        if "switch" in has:
            self.ways["inactive"] = "lock"

    def run(self, F: Any = -1.0, **ways: Any) -> jm.Solution:
        """Its motion."""
        arguments = self.system, self.q0, self.v0, SAVES, self.params | {"F": F}
        return jm.simulate(*arguments, **self.ways, **ways)

    def motion(self, sol: Any) -> np.ndarray:
        """Position and its rate."""
        return np.stack([sol.q[..., 0], sol.v[..., 0] / self.per_rate], axis=-1)


def exact(features: Iterable[str], F: float = -1.0, times: Any = SAVES) -> np.ndarray:
    """Position and rate at some times, without a step."""
    has, (x, v, z) = set(features), START
    t, u, rows, is_locked = 0.0, 0.0, [], False
    limit = LIMIT if "friction" in has else 0.0
    changes = {END, *times}
    if "controller" in has:
        changes |= set(PERIOD * np.arange(1, 10))
    if "switch" in has:
        changes |= set(LOCKED)
    if "input" in has:
        changes |= {*HOLD[0][1:], *RAMP[0][1:]}
    ordered = sorted(changes)
    ordered = [a for a, b in zip(ordered, [*ordered[1:], np.inf], strict=True) if b - a > 1e-12]
    number, samples = 0, 0
    while True:
        while len(rows) < len(times) and times[len(rows)] <= t + 1e-12:
            rows.append((x, v))
        if t >= END - 1e-12:
            return np.array(rows)
        if "controller" in has and t >= PERIOD * samples - 1e-12:
            u, samples = -4.0 * (x - 0.1) - v, samples + 1
        if "switch" in has:
            is_locked = LOCKED[0] - 1e-12 <= t < LOCKED[1] - 1e-12
            v = 0.0 if is_locked else v
        while ordered[number] <= t + 1e-12:
            number += 1
        left, load, slope = ordered[number] - t, F + u, 0.0
        if "state" in has:
            load, slope = load + z + RATE * t, slope + RATE
        if "input" in has:
            load += HOLD[1][np.searchsorted(HOLD[0], t + 1e-12) - 1]
            k = np.searchsorted(RAMP[0], t + 1e-12) - 1
            gain = np.diff(RAMP[1])[k] / np.diff(RAMP[0])[k]
            load, slope = load + RAMP[1][k] + gain * (t - RAMP[0][k]), slope + gain
        lies = "gap" in has and x == 0.0
        held = is_locked or (v == 0.0 and -(np.inf if lies else limit) <= load <= limit)
        side = np.sign(v) if v else np.sign(load)
        a, da = (0.0, 0.0) if held else (load - side * limit, slope)
        happens = [(left, "")]
        if held and not is_locked and slope:
            ends = [(limit - load) / slope, *([] if lies else [(-limit - load) / slope])]
            happens += [(s, "") for s in ends if s > 1e-12]
        if not held and limit and v:
            happens += [(s, "stops") for s in _roots(da / 2, a, v)]
        if not held and "gap" in has:
            roots = _roots(da / 6, a / 2, v, x)
            happens += [(s, "stop") for s in roots if v + a * s + da * s**2 / 2 < 0]
        if not held and "event" in has:
            roots = _roots(da / 6, a / 2, v, x - LEVEL)
            happens += [(s, "hit") for s in roots if v + a * s + da * s**2 / 2 < 0]
        s, what = min(happens)
        t, x = t + s, x + v * s + a * s**2 / 2 + da * s**3 / 6
        v += a * s + da * s**2 / 2
        t = ordered[number] if s == left else t
        if what == "stops":
            v = 0.0
        elif what == "stop":
            x, v = 0.0, -BOUNCE * v
        elif what == "hit":
            x, v = LEVEL, 0.5 * v


def _roots(*polynomial: float) -> list[float]:
    roots = np.roots(np.trim_zeros(polynomial, "f"))
    return [r.real for r in roots if abs(r.imag) < 1e-9 and r.real > 1e-9]
