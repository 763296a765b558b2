"""`from_mjcf`: a mechanism from an MJCF or URDF file, and the `Robot` to find its things in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.interop.as_model import as_model
from jaxmech.interop.mujoco.bodies import (
    Conversion,
    Mount,
    Offset,
    Tree,
    Values,
    tidy,
)
from jaxmech.interop.mujoco.constraints import couplings, limits_of, loops
from jaxmech.interop.mujoco.forces import actuators, resistance, supports, terms, weights
from jaxmech.interop.mujoco.source import (
    LeftOut,
    add_model,
    compiled,
    inputs_of,
    is_any,
    mujoco,
    names_of,
    spec_of,
    text_of,
    unknown_elements,
)
from jaxmech.models import Model
from jaxmech.parts import Frame, Mechanism, dry_friction, spanning_tree, vectors
from jaxmech.system import System
from jaxmech.utils.caller import warn_caller

KINDS = ("anchor", "armature", "center", "damping", "frictionloss", "inertia", "mass", "stiffness")


class IgnoredElementsWarning(UserWarning):
    """A model has elements that could not be taken over."""


class BodyPose(NamedTuple):
    """A frame that is fixed to a body of a mechanism.

    Attributes:
        body: name of the body, or "ground".
        position: origin of the frame on the body [m], (3,).
        attitude: quaternion of the frame relative to the body, (4,).
    """

    body: str
    position: tuple[float, ...]
    attitude: tuple[float, ...]


class Keyframe(NamedTuple):
    """A state of a keyframe: coordinates and velocities (n,), and the inputs as parameters."""

    q: Array
    v: Array
    ctrl: Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Robot:
    """The mechanism of an MJCF or URDF file.

    The result of `from_mjcf`.

    Attributes:
        mechanism: the mechanism, in the coordinates of its joints.
        ignored: the names of what could not come along, by kind, such as "contact".
        keyframes: the states of keyframes by name.
        bodies: where the bodies of the file are, by name; those that do not move relative to
            another one have become a part of it.
        sites: where the sites are, by name.
        joints: the coordinates of each joint, by its name.
        conversion: from and to MuJoCo's qpos and qvel.
        reference: MuJoCo's qpos of the reference pose.
    """

    mechanism: Mechanism
    ignored: Mapping[str, tuple[str, ...]]
    keyframes: Mapping[str, Keyframe]
    bodies: Mapping[str, BodyPose]
    sites: Mapping[str, BodyPose]
    joints: Mapping[str, tuple[str, ...]]
    conversion: Conversion
    reference: np.ndarray

    def __repr__(self) -> str:
        lines = [repr(self.mechanism).replace("Mechanism", "Robot", 1)]
        ignored = {f"ignored {kind}": names for kind, names in self.ignored.items()}
        titled = {"sites": self.sites, "keyframes": self.keyframes, **ignored}
        lines += [f"{title}: {', '.join(names)}" for title, names in titled.items() if names]
        return "\n".join(lines)

    @property
    def model(self) -> Model:
        """A `Model` for studies, fits and commands such as `jaxmech check`.

        Its start variables are the coordinates, and the velocities under names such as
        `elbow.angle.rate` and `ball.spin_x`; the state is the nearest one on the constraints.
        """
        summary = "a mechanism from an MJCF or URDF file"
        return as_model(self.mechanism, *self.start, name="robot", summary=summary)

    @property
    def system(self) -> System:
        return self.mechanism.system

    @property
    def params(self) -> Mapping[str, Any]:
        """The default parameters of the mechanism."""
        return self.mechanism.params

    @property
    def start(self) -> tuple[Array, Array]:
        """The reference pose at rest: coordinates (n,) and velocities."""
        q = self.q(self.reference)
        return q, jnp.zeros(self.mechanism.system.n_velocities, q.dtype)

    def q(self, qpos: Any) -> Array:
        """The coordinates (n,) of MuJoCo's positions `qpos` (nq,)."""
        return self.conversion.q(qpos)

    def v(self, q: Any, qvel: Any) -> Array:
        """The velocities of MuJoCo's `qvel` (nv,) at coordinates q (n,)."""
        system, params = self.mechanism.system, self.mechanism.params
        return system.dynamics.from_speeds(
            jnp.asarray(q), self.conversion.v(q, qvel), jnp.zeros(()), params
        )

    def qpos(self, q: Any) -> Array:
        """MuJoCo's positions (nq,) of coordinates (n,)."""
        return self.conversion.qpos(q)

    def qvel(self, q: Any, v: Any) -> Array:
        """MuJoCo's velocities (nv,) of coordinates (n,) and velocities."""
        system, params = self.mechanism.system, self.mechanism.params
        speeds = system.dynamics.speeds(jnp.asarray(q), jnp.asarray(v), jnp.zeros(()), params)
        return self.conversion.qvel(q, speeds)

    def frame(self, name: str, q: Any, t: Any = 0.0, params: Any = None) -> Frame:
        """The frame of a site or of a body of the file, of a site if both have the name.

        Args:
            name: name in the file.
            q: coordinates, (n,).
            t: time [s].
            params: parameters, by default those of the mechanism.

        Raises:
            ValueError: if neither a site nor a body has this name.
        """
        mounted = {**self.bodies, **self.sites}.get(name)
        if mounted is None:
            raise ValueError(
                f"Argument `name` must be that of a site ({', '.join(self.sites) or 'none'}) or of "
                f"a body ({', '.join(self.bodies)}), but is {name!r}."
            )
        turn, origin = np.asarray(mounted.attitude), np.asarray(mounted.position)
        if mounted.body == "ground":
            return Frame(origin, vectors.rotation(turn), turn)
        frame = self.mechanism.frame(mounted.body, q, t, params)
        attitude = vectors.product(frame.attitude, turn)
        return Frame(
            frame.point(origin), vectors.matmul(frame.axes, vectors.rotation(turn)), attitude
        )


def from_mjcf(
    source: Any,
    *,
    strict: bool = False,
    params: tuple[str, ...] = (),
    friction_speed: float = 0.01,
    velocities: Literal["rates", "spins"] = "rates",
    limits: bool = False,
) -> Robot:
    """The mechanism of an MJCF or URDF file, with its equalities as hard constraints.

    Taken over are bodies with their inertias (also from geoms), hinges, slides, balls and free
    joints, `connect`, `weld` and `joint` equalities, springs, damping, armature, frictionloss,
    gravity and its compensation, actuators that are affine in ctrl, way and speed (`motor`,
    `position`, `velocity`, `general`, with their ranges), sites and keyframes, and for pictures the
    geoms, of a URDF file those of its collisions. Bodies without joints become a part of the body
    that they are fixed to. Hinges and slides have the angles and positions of MuJoCo's `qpos` as
    coordinates. The inputs of actuators are `params["ctrl.elbow"]` and so on, zero by default.

    Args:
        source: path of a file, its text, or an `MjSpec`.
        strict: whether to raise for elements that cannot come along, instead of a warning.
        params: kinds of numbers that are parameters by name instead of constants, out of
            "anchor" (where a hinge, slide or ball is on the body before it), "armature", "center",
            "damping", "frictionloss", "inertia", "mass" and "stiffness": `params["mass.forearm"]`.
        friction_speed: the speed [rad/s or m/s] below which frictionloss f is smoothed, as
            f tanh(v / friction_speed).
        velocities: those of the `Mechanism`; with "spins", v has the numbers of MuJoCo's `qvel`.
        limits: whether limits of hinges, slides and tendons are unilateral constraints, stops and
            ropes that nothing passes, with names such as "elbow.limit"; and frictionloss of hinges
            and slides is dry friction that sticks, "elbow.friction". Without, limits are left out.

    Returns:
        A `Robot`: the mechanism, what was ignored, keyframes, sites, and the conversion of
        coordinates.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: if MuJoCo is not installed, or too old for a URDF file.
        ValueError: if the file is not a model, or has elements that cannot be converted and
            `strict` is set.

    Example:
        >>> robot = from_mjcf('''<mujoco><worldbody><body name="arm">
        ...   <joint name="pivot" axis="0 1 0"/>
        ...   <inertial pos="0 0 -1" mass="2" diaginertia="0.1 0.1 0.1"/>
        ... </body></worldbody></mujoco>''')
        >>> robot.mechanism.system
        System(coordinates=('pivot.angle',), constraints=())
    """
    for kind in params:
        if kind not in KINDS:
            raise ValueError(
                f"Argument `params` must hold kinds out of {', '.join(KINDS)}, but has {kind!r}."
            )
    spec, source_name = spec_of(source)
    model = compiled(spec, source_name)
    left_out = LeftOut()
    for element in unknown_elements(text_of(source)):
        left_out.add("unknown element", element)
    robot = _robot(model, spec, left_out, Values(tuple(params)), friction_speed, velocities, limits)
    if robot.ignored:
        summary = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in robot.ignored.items())
        if strict:
            raise ValueError(
                f"The model has elements that cannot come along: {summary}; remove them, or leave "
                "out `strict`."
            )
        warn_caller(f"left out of the model: {summary}.", IgnoredElementsWarning)
    return robot


def _robot(
    model: Any, spec: Any, left_out: LeftOut, values: Values, friction_speed: float,
    velocities: Literal["rates", "spins"], has_limits: bool,
) -> Robot:  # fmt: skip
    """All parts of the robot of a compiled model."""
    # The bodies that move, with what is fixed to them, in a tree of joints.
    tree = Tree(model, spec, values, left_out)
    if not tree.moving:
        raise ValueError("The model must have a body that moves, but none has a joint; add joints.")
    names, joints = tree.names, tree.joint_names
    equalities = names_of(model, "equality", model.neq, (*joints, *names))
    closing = loops(tree, equalities)
    cut = tuple(joint.name for joint in closing)
    order = spanning_tree(tree.bodies, [*tree.joints, *closing], cut)[0].coordinates
    conversion = tree.conversion(order)

    # What acts on them, and limits.
    inputs, by_name = inputs_of(model), {joint.name: joint for joint in tree.joints}
    carrying, driving = supports(tree), actuators(tree, [*inputs], conversion)
    sticking = tree.scalar_joints if has_limits else ()
    resisting, dry = resistance(tree, conversion, friction_speed, sticking)
    forces = [*weights(model), *carrying, *terms(tree, conversion), *resisting, *driving]
    frictions = [dry_friction(f"{k}.friction", by_name[k], static=x) for k, x in dry.items()]
    driven = [actuator.name for actuator in driving[0].actuators] if driving else []
    stops, taken = limits_of(tree, conversion) if has_limits else ([], set())
    add_model(left_out, model, spec, names, joints, taken)
    equations = couplings(tree, equalities, conversion)
    mechanism = Mechanism(
        tree.bodies,
        [*tree.joints, *closing, *equations, *stops, *frictions],
        forces,
        {**values.params, **{f"ctrl.{name}": 0.0 for name in driven}},
        coordinates="joints",
        cut=cut,
        velocities=velocities,
        scenery=tree.looks.get(0, ()),
    )

    # Where things of the file are in it, and its keyframes.
    def body_pose(mount: Mount, pose: Offset) -> BodyPose:
        body = tree.moving.get(mount.index)
        position, attitude = (tuple(float(x) for x in tidy(part)) for part in pose)
        return BodyPose("ground" if body is None else body.name, position, attitude)

    sites = {}
    for s, name in enumerate(names_of(model, "site", model.nsite)):
        mount = tree.mounts[model.site_bodyid[s]]
        offset = Offset(model.site_pos[s], model.site_quat[s])
        sites[name] = body_pose(mount, mount.pose.then(offset))
    coordinates = {}  # of each joint; those of a free one are of its body
    for j, name in enumerate(joints):
        is_free = is_any(model.jnt_type[j], mujoco().mjtJoint.mjJNT_FREE)
        prefix = names[model.jnt_bodyid[j]] if is_free else name
        coordinates[name] = tuple(x for x in order if x.rpartition(".")[0] == prefix)
    keyframes, params = {}, mechanism.params
    for k, name in enumerate(names_of(model, "key", model.nkey)):
        q = conversion.q(model.key_qpos[k])
        rates = conversion.v(q, model.key_qvel[k])
        v = mechanism.system.dynamics.from_speeds(q, rates, jnp.zeros(()), params)
        settings = {f"ctrl.{x}": float(model.key_ctrl[k, n]) for x, n in inputs.items()}
        ctrl = {x: value for x, value in settings.items() if x in params}
        keyframes[name] = Keyframe(q, v, ctrl)
    return Robot(
        mechanism,
        {kind: tuple(some) for kind, some in left_out.kinds.items()},
        keyframes,
        {names[k]: body_pose(mount, mount.pose) for k, mount in enumerate(tree.mounts)},
        sites,
        coordinates,
        conversion,
        np.array(model.qpos0),
    )
