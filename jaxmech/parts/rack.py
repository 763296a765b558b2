"""The rack: a joint that couples the rotation of a pinion and the way of a bar on a carrier.

    equation in the plane                  in space, on velocities
    r angle_a - x_b = phase                r spin_a - speed_b = 0

In space there is no phase. The multiplier is the force of a tooth [N].

`rack` raises a TypeError for an argument that is not a body or not a value, and a ValueError for
bodies or directions that do not fit; the message names the joint.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import Solid, scaled
from jaxmech.parts.body import AbstractBody, Moving, ground
from jaxmech.parts.directions import Frames, pointing
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.gears import TEETH, require_no_phase, with_teeth
from jaxmech.parts.joints.base import EquationJoint
from jaxmech.parts.joints.checks import part_name, partners, require_no_axes
from jaxmech.parts.position_equations import AbstractPosition
from jaxmech.parts.values import Reader, Value, Vector, direction, number, positive, unit
from jaxmech.parts.vectors import quarter_turn
from jaxmech.parts.velocity_equations import AbstractVelocity
from jaxmech.utils.text import capital


def rack(
    name: str,
    a: AbstractBody,
    radius: Value,
    b: AbstractBody,
    *,
    axis: Vector,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
) -> EquationJoint:
    """A rack that a pinion moves along an axis of their carrier.

    A turn by a positive angle moves the rack along `axis`. The bearing of the pinion and the guide
    of the rack are separate joints.

    Args:
        name: name of the joint.
        a: the pinion.
        radius: pitch radius of the pinion [m].
        b: the rack.
        axis: direction of the motion of the rack on the carrier.
        carrier: the body that holds the bearing.
        phase: the value of r angle - x [m]; in the plane only.
        axis_a: in space, the axis of the pinion, on the pinion.

    Example:
        >>> from jaxmech.parts import planar_body
        >>> pinion, bar = (planar_body(name, mass=1.0, inertia=0.1) for name in ("pinion", "bar"))
        >>> rack("steering", pinion, 0.01, bar, axis=(1, 0)).kind
        'rack'
    """
    part = part_name("rack", name)
    bodies, size = partners(part, (a, b, carrier), turning=True)
    r, u = positive(part, "radius", radius), direction(part, "axis", axis, size)
    if size == 2:
        require_no_axes(part, axis_a=axis_a)
        return EquationJoint("rack", name, bodies, (RackMesh(r, u, number(part, "phase", phase)),))
    require_no_phase(part, phase)
    if axis_a is None:
        raise ValueError(
            f"{capital(part)} must have `axis_a` in space; write the direction of the axis of the "
            "pinion."
        )
    speed = RackSpeed(direction(part, "axis_a", axis_a, 3), r, u)
    return EquationJoint("rack", name, bodies, velocities=(speed,))


@dataclass(frozen=True)
class RackMesh(AbstractPosition):
    """A pinion a and a rack b in the plane, on a carrier as third body."""

    radius: Value
    axis: Vector
    phase: Value

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The pinion and the rack."""
        return 0, 1

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual r angle - u . x - phase, with angle and position relative to the carrier."""
        a, b, carrier = frames
        x = carrier.components(b.origin - carrier.origin)
        turn = read.number(self.radius) * (a.attitude - carrier.attitude)
        return (turn - unit(read, self.axis, 2) @ x - read.number(self.phase))[None]

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both with teeth."""
        return _pinion_and_rack(drawing, self.radius, self.axis, None)


@dataclass(frozen=True)
class RackSpeed(AbstractVelocity):
    """A pinion a and a rack b in space, on a carrier as third body."""

    axis_a: Vector
    radius: Value
    axis: Vector

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The pinion and the rack."""
        return 0, 1

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual r (w_a - w) . axis_a - u . v_b, with v_b relative to the carrier."""
        a, b, carrier = motions
        u = pointing(carrier.frame, self.axis, read)
        spin = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        speed = u @ (b.velocity - carrier.velocity_at(b.frame.origin))
        return (read.number(self.radius) * spin - speed)[None]

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both with teeth."""
        return _pinion_and_rack(drawing, self.radius, self.axis, self.axis_a)


def _pinion_and_rack(drawing: Drawing, radius: Value, axis: Vector, axle: Vector | None) -> Shapes:
    """A pinion, and the bar that it moves; with teeth if its radius is a number."""
    (pinion, bar, carrier), read, name = drawing.frames, drawing.read, drawing.name
    u = jnp.asarray(pointing(carrier, axis, read))
    if axle is None:
        axes, depth = jnp.stack([u, jnp.asarray(quarter_turn(u))], axis=1), drawing.depth(1)
    else:
        z = jnp.asarray(pointing(pinion, axle, read))
        axes, depth = jnp.stack([u, jnp.cross(z, u), z], axis=1), jnp.zeros(())
    r, label = read.number(radius), f"{name}.1"
    wheel = drawing.wheel(label, 0, None, radius, axle)[f"{label}.wheel"]
    width, center = jnp.ptp(wheel.vertices[:, 2]), jnp.asarray(pinion.origin)
    way = u @ (jnp.asarray(bar.origin) - center)
    module = 2 * r / TEETH
    mesh, shift = meshes.rack(TEETH + 1), -way  # a tooth is where the pinion has a gap
    if isinstance(radius, float):
        wheel = with_teeth(wheel, radius, TEETH, -axes[:, 1], np.pi / TEETH)
    else:
        mesh = meshes.box().moved((0.0, -2.5, 0.0), np.diag([np.pi * TEETH, 5.0, 1.0]))
    vertices = scaled(mesh.vertices, (module, module, width), (shift, 0.0, depth))
    origin = center - r * axes[:, 1] + way * u
    shapes = {f"{drawing.bodies[1].name}.{name}": Solid(origin, axes, vertices, mesh.faces)}
    if not drawing.has_visual(0):
        shapes[f"{drawing.bodies[0].name}.{name}"] = wheel
    return shapes
