"""Closed loops of spatial bodies in any orientation, described in one pose by points and axes.

The pose is turned as a whole by a random rotation, and each body has random axes of its own.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxmech as jm
from jaxmech import parts as jp

X, Y, Z = np.eye(3)
ORIGIN = np.zeros(3)


class Pose:
    """Bodies and joints of a mechanism in space; without a seed all axes are those of space."""

    def __init__(self, seed: int | None, coordinates: Any = "joints") -> None:
        self.draw = None if seed is None else np.random.default_rng(seed)
        self.coordinates = coordinates
        self.bodies: dict[str, jp.AbstractBody] = {"ground": jp.ground}
        self.places = {"ground": ORIGIN}
        self.axes = {"ground": self.rotation().T}  # of the bodies, as columns
        self.joints: list[Any] = []
        self.cut: list[str] = []
        self.motions: dict[str, dict[str, Any]] = {}

    @property
    def turn(self) -> np.ndarray:
        return self.axes["ground"].T

    def rotation(self) -> np.ndarray:
        if self.draw is None:
            return np.eye(3)
        return np.asarray(Rotation.random(random_state=self.draw).as_matrix())

    def body(self, name: str, place: Any = ORIGIN, **motion: Any) -> None:
        axes = self.rotation()
        inertia = axes.T @ np.diag([0.02, 0.03, 0.04]) @ axes
        self.bodies[name] = jp.spatial_body(name, mass=1.0, inertia=tuple(map(tuple, inertia)))
        self.places[name], self.axes[name], self.motions[name] = np.asarray(place), axes, motion

    def along(self, name: str, u: Any) -> tuple[float, ...]:
        return tuple(self.axes[name].T @ np.asarray(u))

    def point(self, name: str, x: Any) -> tuple[float, ...]:
        return self.along(name, x - self.places[name])

    def join(
        self, make: Callable[..., Any], name: str, a: str, b: str, x: Any, *, cut: bool = False,
        **axes: Any,
    ) -> None:  # fmt: skip
        """Add a joint at the point x, with axes in space that its two bodies share."""
        if make is jp.universal:
            axes = {key: self.along(key.replace("axis_a", a).replace("axis_b", b), u)
                    for key, u in axes.items()}  # fmt: skip
        else:
            if make in (jp.revolute, jp.planar):
                axes |= {f"{key}_b": self.along(b, u) for key, u in axes.items()}
            axes |= {key: self.along(a, u) for key, u in axes.items() if not key.endswith("_b")}
        if make is jp.prismatic:
            axes["turn"] = quaternion_of(self.axes[a].T @ self.axes[b])
        points = self.bodies[a], self.point(a, x), self.bodies[b], self.point(b, x)
        self.joints.append(make(name, *points, **axes))
        self.cut += [name] if cut and self.coordinates == "joints" else []

    def mechanism(self) -> jp.Mechanism:
        bodies = [body for name, body in self.bodies.items() if name != "ground"]
        weight = jp.gravity(down=tuple(self.turn @ -Y))
        return jp.Mechanism(
            bodies, self.joints, [weight], coordinates=self.coordinates, cut=self.cut
        )

    def start(self, mechanism: jp.Mechanism) -> tuple[Any, Any]:
        """The state on the constraints that is nearest to the pose and the velocities in it."""
        starts = {
            name: jp.Start(
                self.turn @ self.places[name],
                quaternion_of(self.turn @ self.axes[name]),
                self.turn @ motion.get("velocity", ORIGIN),
                self.turn @ motion.get("spin", ORIGIN),
            )
            for name, motion in self.motions.items()
        }
        return jm.assemble(mechanism.system, *mechanism.guess(starts))


def quaternion_of(R: Any) -> np.ndarray:
    return np.roll(Rotation.from_matrix(R).as_quat(), 1)


def four_bar(pose: Pose) -> None:
    """A crank, a coupler and a rocker."""
    A, B, C = 0.3 * Y, np.array([0.7422, 0.5985, 0.0]), 0.7 * X
    pose.body("crank", spin=3 * Z)
    pose.body("coupler", A)
    pose.body("rocker", C)
    pose.join(jp.revolute, "O", "ground", "crank", ORIGIN, axis=Z)
    pose.join(jp.revolute, "A", "crank", "coupler", A, axis=Z)
    pose.join(jp.revolute, "C", "ground", "rocker", C, axis=Z)
    pose.join(jp.revolute, "B", "coupler", "rocker", B, cut=True, axis=Z)


def four_bar_on_table(pose: Pose) -> None:
    """A coupler that also glides on a table, of which the loop implies all equations."""
    four_bar(pose)
    pose.join(jp.planar, "table", "ground", "coupler", 0.3 * X + 0.3 * Y, cut=True, normal=Z)


def slider_crank(pose: Pose) -> None:
    A, B = 0.1 * X + 0.2 * Y, 0.7 * X
    pose.body("crank", spin=3 * Z)
    pose.body("rod", A)
    pose.body("block", B)
    pose.join(jp.revolute, "O", "ground", "crank", ORIGIN, axis=Z)
    pose.join(jp.revolute, "A", "crank", "rod", A, axis=Z)
    pose.join(jp.revolute, "B", "rod", "block", B, axis=Z)
    pose.join(jp.prismatic, "guide", "ground", "block", B, cut=True, axis=X)


def shafts(pose: Pose) -> None:
    """Two bent shafts in bearings, with a Cardan joint where their axes meet."""
    bent = np.array([np.cos(0.5), np.sin(0.5), 0.0])
    pose.body("one", spin=5 * X)
    pose.body("two")
    pose.join(jp.revolute, "in", "ground", "one", -X, axis=X)
    pose.join(jp.revolute, "out", "ground", "two", bent, axis=bent)
    arms = {"axis_a": Z, "axis_b": np.cross(Z, bent)}
    pose.join(jp.universal, "cross", "one", "two", ORIGIN, cut=True, **arms)


def sarrus(pose: Pose) -> None:
    """Two pairs of legs, whose hinges are at right angles, lead a plate along a straight line."""
    pose.body("plate", 0.4 * Z)
    for k, (out, axis) in enumerate(((X, Y), (Y, -X))):
        low, knee, top = 0.5 * out, 0.8 * out + 0.2 * Z, 0.5 * out + 0.4 * Z
        pose.body(f"low{k}", low, spin=2 * axis)
        pose.body(f"high{k}", knee)
        pose.join(jp.revolute, f"A{k}", "ground", f"low{k}", low, axis=axis)
        pose.join(jp.revolute, f"B{k}", f"low{k}", f"high{k}", knee, axis=axis)
        pose.join(jp.revolute, f"C{k}", f"high{k}", "plate", top, cut=k == 1, axis=axis)


def bennett(pose: Pose) -> None:
    """Four hinges in space, overconstrained by three (Bennett 1903)."""
    lengths, twists = (0.8, 0.5), [0.7, 0.0]
    twists[1] = np.arcsin(lengths[1] * np.sin(twists[0]) / lengths[0])
    ratio = np.sin(sum(twists) / 2) / np.sin((twists[1] - twists[0]) / 2)
    first = 1.0
    second = 2 * np.arctan(ratio / np.tan(first / 2))
    R, x, hinges = np.eye(3), ORIGIN, []
    for k, angle in enumerate((first, second, -first, -second)):
        hinges.append((x, R[:, 2]))
        R = R @ Rotation.from_euler("z", angle).as_matrix()
        x = x + lengths[k % 2] * R[:, 0]
        R = R @ Rotation.from_euler("x", twists[k % 2]).as_matrix()
    assert np.abs([x, R[:, 0] - X, R[:, 1] - Y]).max() < 1e-12  # closed
    names = ["ground", "one", "two", "three"]
    pose.body("one", hinges[1][0], spin=3 * Z)
    pose.body("two", hinges[2][0])
    pose.body("three", hinges[3][0])
    for k, (at, axis) in enumerate(hinges[:3]):
        pose.join(jp.revolute, f"J{k}", names[k], names[k + 1], at, axis=axis)
    pose.join(jp.revolute, "J3", "ground", "three", hinges[3][0], cut=True, axis=hinges[3][1])


def posed(make: Callable[[Pose], None], seed: int | None, coordinates: Any = "joints") -> Any:
    """The pose, the mechanism and its start."""
    pose = Pose(seed, coordinates)
    make(pose)
    mechanism = pose.mechanism()
    q, v = pose.start(mechanism)
    assert jnp.abs(v).max() > 0.1
    return pose, mechanism, q, v
