"""Mechanisms made of parts alone, on which the tests of this folder run.

Each is a function of nothing that returns the mechanism and the starts of its bodies.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech import parts as jp
from tests.parts.loops import quaternion_of

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


def four_bar_in_space() -> Built:
    """The same loop of spatial bodies with four hinges: three equations more than needed."""
    inertia = lambda t, p: p["m"] * p["l"] ** 2 / 12 * jnp.array([1e-3, 1.0, 1.0])  # noqa: E731
    ends = (half(-1), 0, 0), (half(1), 0, 0)
    left, right, coupler = (
        jp.spatial_body(name, mass="m", inertia=inertia) for name in ("left", "right", "coupler")
    )
    z = (0, 0, 1)
    joints = [
        jp.revolute("A0", jp.ground, (0, 0, 0), left, ends[0], axis=z),
        jp.revolute("A1", jp.ground, ("l", 0, 0), right, ends[0], axis=z),
        jp.revolute("B0", left, ends[1], coupler, ends[0], axis=z),
        jp.revolute("B1", right, ends[1], coupler, ends[1], axis=z),
    ]
    up = {"attitude": jp.quaternion(z, np.pi / 2), "spin": (0, 0, -1.0), "velocity": (0.5, 0, 0)}
    starts = {
        "left": jp.Start((0.0, 0.5, 0.0), **up),
        "right": jp.Start((1.0, 0.5, 0.0), **up),
        "coupler": jp.Start((0.5, 1.0, 0.0), velocity=(1.0, 0.0, 0.0)),
    }
    weight = jp.gravity("g", down=(0, -1, 0))
    params = {"m": 1.0, "l": 1.0, "g": 9.81}
    return jp.Mechanism(
        [left, right, coupler], joints, [weight], params, coordinates="bodies"
    ), starts


def slider_crank() -> Built:
    """The slider-crank of Haug 1989: a crank about x at (0, 0.1, 0.12), a rod, a slider along x."""
    crank = jp.spatial_body("crank", mass=0.12, inertia=(1e-4, 1e-5, 1e-4))
    rod = jp.spatial_body("rod", mass=0.5, inertia=(4e-3, 4e-4, 4e-3))
    slider = jp.spatial_body("slider", mass=2.0, inertia=(1e-4, 1e-4, 1e-4))
    x, z = np.eye(3)[[0, 2]]
    o = (0, 0, 0)
    joints = [
        jp.revolute("shaft", jp.ground, (0, 0.1, 0.12), crank, o, axis=x),
        jp.spherical("ball", crank, (0, 0, "crank"), rod, (0, half(1, "rod"), 0)),
        jp.universal("cross", slider, o, rod, (0, half(-1, "rod"), 0), axis_a=z, axis_b=x),
        jp.prismatic("guide", jp.ground, o, slider, o, axis=x),
    ]
    slide, pin = np.array([0.2, 0.0, 0.0]), np.array([0.0, 0.1, 0.2])
    along = (pin - slide) / np.linalg.norm(pin - slide)
    arm = np.cross(along, z) / np.linalg.norm(np.cross(along, z))
    turn = np.stack([arm, along, np.cross(arm, along)], axis=1)
    starts = {
        "crank": jp.Start((0, 0.1, 0.12), spin=(6.0, 0, 0)),
        "rod": jp.Start((slide + pin) / 2, attitude=quaternion_of(turn)),
        "slider": jp.Start(slide),
    }
    params = {"crank": 0.08, "rod": 0.3}
    return jp.Mechanism(
        [crank, rod, slider], joints, [jp.gravity()], params, coordinates="bodies"
    ), starts


def built(make: Callable[[], Built]) -> tuple[jp.Mechanism, Any, Any, Mapping[str, Any]]:
    """The mechanism with its guess and parameters."""
    mechanism, starts = make()
    return mechanism, *mechanism.guess(starts), mechanism.params
