"""A mechanism made of parts alone, on which the tests of this folder run."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech import parts as jp

Built = tuple[jp.Mechanism, dict[str, jp.Start]]


def half(sign: float, name: str = "l") -> Callable[[Any, Any], Any]:
    return lambda t, p: sign * p[name] / 2


def parallel_four_bar(angle: Any = np.pi / 2, spin: Any = -1.0, tied: bool = False) -> Built:
    """Problem A02 of the IFToMM library for one loop: two cranks and a coupler, all of length l.

    A tie rod between the middles of the cranks, if there is one, adds an equation and no rank.
    """
    inertia, ends = lambda t, p: p["m"] * p["l"] ** 2 / 12, ((half(-1), 0), (half(1), 0))
    left, right, coupler = (
        jp.planar_body(name, mass="m", inertia=inertia) for name in ("left", "right", "coupler")
    )
    joints = [
        jp.revolute("A0", jp.ground, (0, 0), left, ends[0]),
        jp.revolute("A1", jp.ground, ("l", 0), right, ends[0]),
        jp.revolute("B0", left, ends[1], coupler, ends[0]),
        jp.revolute("B1", right, ends[1], coupler, ends[1]),
    ]
    if tied:
        joints.append(jp.distance("tie", left, (0, 0), right, (0, 0), length="l"))
    params = {"m": 1.0, "l": 1.0, "g": 9.81}
    out = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    rate = spin * jnp.stack([-out[1], out[0]])
    starts = {
        "left": jp.Start(out / 2, angle, rate / 2, spin),
        "right": jp.Start(out / 2 + np.array([1.0, 0.0]), angle, rate / 2, spin),
        "coupler": jp.Start(out + np.array([0.5, 0.0]), velocity=rate),
    }
    return jp.Mechanism(
        [left, right, coupler], joints, [jp.gravity("g")], params, coordinates="bodies"
    ), starts


def built(make: Callable[[], Built]) -> tuple[jp.Mechanism, Any, Any, Mapping[str, Any]]:
    """The mechanism with its guess and parameters."""
    mechanism, starts = make()
    return mechanism, *mechanism.guess(starts), mechanism.params
