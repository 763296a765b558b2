"""`from_mjcf`: a mechanism from an MJCF or URDF file."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxmech.interop.mujoco.bodies import Mount, Offset, Tree, Values, mounts_of, moving_body, tidy
from jaxmech.interop.mujoco.constraints import couplings, limits_of, loops, scalar_joints
from jaxmech.interop.mujoco.forces import actuators, resistance, supports, terms, weights
from jaxmech.interop.mujoco.left_out import LeftOut, add_model
from jaxmech.interop.mujoco.robot import BodyPose, Conversion, Keyframe, Quaternion, Robot, Scalar
from jaxmech.interop.mujoco.source import (
    compiled,
    inputs_of,
    is_any,
    mujoco,
    names_of,
    spec_of,
    text_of,
    unknown_elements,
)
from jaxmech.interop.mujoco.visuals import visuals_of_model
from jaxmech.parts import AbstractBody, Mechanism, dry_friction, spanning_tree
from jaxmech.utils.caller import warn_caller

KINDS = ("anchor", "armature", "center", "damping", "frictionloss", "inertia", "mass", "stiffness")


class IgnoredElementsWarning(UserWarning):
    """A model has elements that could not be taken over."""


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
    free, mounts = mujoco().mjtJoint.mjJNT_FREE, mounts_of(model)
    names = names_of(model, "body", model.nbody, ("ground",))
    kinds = zip(model.jnt_bodyid, model.jnt_type, strict=True)
    floating = tuple(names[k] for k, kind in kinds if is_any(kind, free))
    joints = names_of(model, "joint", model.njnt, floating)
    equalities = names_of(model, "equality", model.neq, (*joints, *names))
    looks = visuals_of_model(model, spec, mounts)
    moving: dict[int, AbstractBody] = {
        k: moving_body(model, k, names[k], mounts, values, looks.get(k, ()))
        for k in range(1, model.nbody)
        if model.body_jntnum[k]
    }
    if not moving:
        raise ValueError("The model must have a body that moves, but none has a joint; add joints.")
    tree = Tree(moving, joints, values)
    for k in moving:
        tree.add(model, k, mounts)
    closing = loops(model, equalities, mounts, moving, left_out)
    cut = tuple(joint.name for joint in closing)
    order = spanning_tree(tree.bodies, [*tree.joints, *closing], cut)[0].coordinates
    conversion = Conversion(
        order,
        tuple(e for e in tree.entries if isinstance(e, Scalar)),
        tuple(e for e in tree.entries if isinstance(e, Quaternion)),
    )

    # What acts on them, and limits.
    inputs, by_name = inputs_of(model), {joint.name: joint for joint in tree.joints}
    carrying = supports(model, mounts, moving, names, joints, left_out)
    driving = actuators(model, tuple(inputs), conversion, left_out)
    sticking = scalar_joints(model, joints) if has_limits else ()
    resisting, dry = resistance(model, joints, conversion, values, friction_speed, sticking)
    springs = terms(model, joints, conversion, values)
    forces = [*weights(model), *carrying, *springs, *resisting, *driving]
    frictions = [dry_friction(f"{k}.friction", by_name[k], static=x) for k, x in dry.items()]
    driven = [actuator.name for actuator in driving[0].actuators] if driving else []
    stops, taken = list[Any](), set[tuple[str, str]]()
    if has_limits:
        stops, taken = limits_of(model, by_name, joints, conversion, mounts, moving)
    add_model(left_out, model, spec, names, joints, taken)
    equations = couplings(model, equalities, conversion)
    mechanism = Mechanism(
        tree.bodies,
        [*tree.joints, *closing, *equations, *stops, *frictions],
        forces,
        {**values.params, **{f"ctrl.{name}": 0.0 for name in driven}},
        coordinates="joints",
        cut=cut,
        velocities=velocities,
        scenery=looks.get(0, ()),
    )

    # Where things of the file are in it, and its keyframes.
    def body_pose(mount: Mount, pose: Offset) -> BodyPose:
        body = moving.get(mount.index)
        position, attitude = (tuple(float(x) for x in tidy(part)) for part in pose)
        return BodyPose("ground" if body is None else body.name, position, attitude)

    sites = {}
    for s, name in enumerate(names_of(model, "site", model.nsite)):
        mount = mounts[model.site_bodyid[s]]
        own = Offset(model.site_pos[s], model.site_quat[s])
        sites[name] = body_pose(mount, mount.pose.then(own))
    coordinates = {}  # of each joint; those of a free one are of its body
    for j, name in enumerate(joints):
        prefix = names[model.jnt_bodyid[j]] if is_any(model.jnt_type[j], free) else name
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
        left_out.frozen(),
        keyframes,
        {names[k]: body_pose(mount, mount.pose) for k, mount in enumerate(mounts)},
        sites,
        coordinates,
        conversion,
        np.array(model.qpos0),
    )
