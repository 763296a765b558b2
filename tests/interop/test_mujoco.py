"""Mechanisms from MJCF and URDF against MuJoCo's own matrices, forces and frames."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.interop.mujoco import IgnoredElementsWarning, Robot, from_mjcf
from tests.interop.models import ARM, DOUBLE_PENDULUM, FOUR_BAR, LEG, urdf_arm

mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed: jaxmech[mujoco]")

SPEED = 0.5  # of the smoothed friction
ignoring = pytest.mark.filterwarnings("ignore:left out of the model")
pytestmark = pytest.mark.filterwarnings("ignore:meshes cannot be read")


def states(model: Any, count: int, seed: int = 0) -> list[Any]:
    """Random states and inputs of a model, with everything that MuJoCo computes there."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        data = mujoco.MjData(model)
        data.qpos[:] = model.qpos0 + rng.normal(size=model.nq)
        mujoco.mj_normalizeQuat(model, data.qpos)
        data.qvel[:] = rng.normal(size=model.nv)
        data.ctrl[:] = 2 * rng.normal(size=model.nu)
        mujoco.mj_forward(model, data)
        found.append(data)
    return found


def mass(model: Any, data: Any) -> np.ndarray:
    """MuJoCo's mass matrix."""
    M = np.zeros((model.nv, model.nv))
    if hasattr(data, "qM") and not hasattr(data, "M"):
        mujoco.mj_fullM(model, M, data.qM)
        return M
    try:
        mujoco.mj_fullM(model, data, M)
    except TypeError:  # before MuJoCo 3.4
        mujoco.mj_fullM(model, M, data.qM)
    return M


@functools.cache
def robot_of(xml: str, velocities: Any = "rates") -> tuple[Robot, Any]:
    """A robot, and a compiled function: q, v, M and the forces on qvel, and the residuals."""
    robot = from_mjcf(xml, friction_speed=SPEED, velocities=velocities)
    system = robot.mechanism.system

    @jax.jit
    def evaluated(qpos: Any, qvel: Any, params: Any) -> Any:
        q = robot.q(qpos)
        v = robot.v(q, qvel)
        T = jax.jacfwd(lambda u: robot.v(q, u))(qvel)
        speeds = system.dynamics.speeds(q, v, jnp.zeros(()), params)
        drift = jax.jvp(lambda q: robot.v(q, qvel), (q,), (speeds,))[1]
        M = system.dynamics.mass(q, v, jnp.zeros(()), params)
        Q = system.dynamics.conservative_force(q, v, jnp.zeros(()), params)
        Q = Q + system.dynamics.applied_force(q, v, jnp.zeros(()), params)
        values = {c.name: c.value(q, jnp.zeros(()), params) for c in system.constraints}
        return q, v, T.T @ M @ T, T.T @ (Q - M @ drift), values

    return robot, evaluated


@ignoring
@pytest.mark.parametrize(
    ("xml", "velocities"),
    [
        *((xml, "rates") for xml in (DOUBLE_PENDULUM, FOUR_BAR, LEG, ARM, urdf_arm())),
        (LEG, "spins"),
    ],
)
def test_the_tree_moves_as_in_mujoco(xml: str, velocities: str) -> None:
    robot, evaluated = robot_of(xml, velocities)
    model = bare(xml)
    friction = model.dof_frictionloss.copy()
    model.dof_frictionloss[:] = 0
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= int(bits.mjDSBL_CONTACT) | int(bits.mjDSBL_EQUALITY)
    for data in states(model, 3):
        params = with_inputs(robot, model, data)
        q, v, M, force, _ = evaluated(data.qpos, data.qvel, params)
        np.testing.assert_allclose(robot.qpos(q), data.qpos, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(robot.qvel(q, v), data.qvel, rtol=1e-12, atol=1e-13)
        expected = mass(model, data)
        np.testing.assert_allclose(M, expected, rtol=0, atol=1e-12 * expected.max())
        acting = data.qfrc_passive - data.qfrc_bias + data.qfrc_actuator
        acting = acting - friction * np.tanh(data.qvel / SPEED)
        np.testing.assert_allclose(force, acting, rtol=0, atol=1e-12 * np.abs(acting).max())
        if not friction.any():
            qacc = np.linalg.solve(M, force)
            np.testing.assert_allclose(qacc, data.qacc, rtol=0, atol=1e-10 * np.abs(qacc).max())


def bare(xml: str) -> Any:
    """MuJoCo's model of a text, without pictures, with its fixed bodies."""
    spec = mujoco.MjSpec.from_string(xml)
    spec.compiler.fusestatic = False
    for geom in [geom for body in spec.bodies for geom in body.geoms if geom.meshname]:
        spec.delete(geom) if hasattr(spec, "delete") else geom.delete()
    for mesh in list(spec.meshes):
        spec.delete(mesh) if hasattr(spec, "delete") else mesh.delete()
    return spec.compile()


def with_inputs(robot: Robot, model: Any, data: Any) -> Any:
    inputs = {f"ctrl.{model.actuator(k).name}": data.ctrl[k] for k in range(model.nu)}
    assert inputs.keys() == robot.mechanism.params.keys()
    return inputs


@pytest.mark.parametrize("xml", [DOUBLE_PENDULUM, LEG, urdf_arm()])
@ignoring
def test_bodies_and_sites_are_where_mujoco_has_them(xml: str) -> None:
    robot, model = robot_of(xml)[0], bare(xml)
    (data,) = states(model, 1)
    q = robot.q(data.qpos)
    bodies = [(model.body(k).name, data.xpos[k], data.xmat[k]) for k in range(1, model.nbody)]
    sites = [(model.site(k).name, data.site_xpos[k], data.site_xmat[k]) for k in range(model.nsite)]
    for name, origin, axes in bodies + sites:
        frame = robot.frame(name, q)
        np.testing.assert_allclose(frame.origin, origin, atol=1e-12)
        np.testing.assert_allclose(frame.axes, axes.reshape(3, 3), atol=1e-12)


@ignoring
@pytest.mark.parametrize("xml", [FOUR_BAR, LEG])
def test_equalities_are_the_equations_of_mujoco(xml: str) -> None:
    (robot, evaluated), model = robot_of(xml), bare(xml)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    for data in states(model, 2):
        *_, values = evaluated(data.qpos, data.qvel, with_inputs(robot, model, data))
        at = 0
        for k in range(model.neq):
            mine = np.array(values[model.equality(k).name])
            theirs = data.efc_pos[at : at + len(mine)]
            at += len(mine)
            exact = 3 if len(mine) == 6 else len(mine)  # an attitude is measured in another way
            signs = np.sign(mine[0] * theirs[0])
            np.testing.assert_allclose(mine[:exact], signs * theirs[:exact], atol=1e-12)


def test_keyframes_and_the_reference_are_states() -> None:
    robot = robot_of(DOUBLE_PENDULUM)[0]
    bent = robot.keyframes["bent"]
    np.testing.assert_allclose(bent.q, [0.5, -0.7])
    np.testing.assert_allclose(bent.v, [0.1, 0.2])
    np.testing.assert_allclose(robot.start[0], [np.deg2rad(20), 0.0])
    assert robot.joints == {"shoulder": ("shoulder.angle",), "elbow": ("elbow.angle",)}
    leg = robot_of(LEG)[0]
    assert leg.joints["float"] == tuple(
        f"platform.{x}" for x in ("x", "y", "z", "e0", "e1", "e2", "e3")
    )
    assert leg.bodies["foot"].body == "shank"
    assert leg.sites["mark"] == ("ground", (0.1, 0.2, 0.3), (1.0, 0.0, 0.0, 0.0))


def test_a_robot_is_a_model_for_studies() -> None:
    model = robot_of(DOUBLE_PENDULUM)[0].model
    q, v = model.initial({"elbow.angle": 0.3, "shoulder.angle.rate": 2.0})
    np.testing.assert_allclose(q, [np.deg2rad(20), 0.3])
    np.testing.assert_allclose(v, [2.0, 0.0])


def test_numbers_of_a_file_become_parameters() -> None:
    kinds = ("mass", "stiffness", "damping", "armature")
    robot = from_mjcf(DOUBLE_PENDULUM, params=kinds)
    params = robot.mechanism.params
    assert {name.partition(".")[0] for name in params} == {*kinds}
    assert params["stiffness.shoulder"] == pytest.approx(2.0)
    assert (params["damping.shoulder"], params["damping.elbow"]) == (pytest.approx(0.1), 0.0)
    system, (q, v) = robot.mechanism.system, robot.start

    def inertia(mass: Any) -> Any:  # about the shoulder, with the elbow at its reference
        return system.dynamics.mass(q, v, jnp.zeros(()), {**params, "mass.lower": mass})[0, 0]

    arm = jnp.array(robot.frame("lower", q).point(jnp.array([0.1, 0.0, -0.2]))) - jnp.array(
        [0.0, 0.0, 1.0]
    )
    slope = jax.jit(jax.grad(inertia))(params["mass.lower"])
    np.testing.assert_allclose(slope, arm[0] ** 2 + arm[2] ** 2, rtol=1e-12)
    with pytest.raises(ValueError, match="`params` must hold kinds out of anchor"):
        from_mjcf(DOUBLE_PENDULUM, params=("weight",))


CROWDED = """
<mujoco>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body><joint limited="true" range="-10 10"/><joint axis="1 0 0"/><geom name="ball" size="0.1"/>
      <site name="a"/></body>
    <body name="ground"><joint/><geom size="0.1"/><site name="b"/></body>
    <body name="hand" mocap="true"><geom size="0.1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <tendon><spatial name="cord"><site site="a"/><site site="b"/></spatial></tendon>
  <equality><tendon tendon1="cord"/></equality>
  <actuator><motor tendon="cord"/></actuator>
</mujoco>
"""


def test_what_cannot_come_along_is_listed() -> None:
    expected = {
        "contact": ("world", "body1", "ground_"),
        "tendon equality": ("equality0",),
        "actuator": ("actuator0",),
        "joint limit": ("joint0",),
        "mocap": ("hand",),
        "tendon": ("cord",),
    }
    with pytest.warns(IgnoredElementsWarning, match="tendon: cord") as shown:
        robot = from_mjcf(CROWDED)
    assert len(shown) == 1
    assert robot.ignored == expected
    assert robot.mechanism.system.coordinates == ("joint0.angle", "joint2.angle", "joint1.angle")
    with pytest.raises(ValueError, match=r"cannot come along: .*mocap: hand.*leave out `strict`"):
        from_mjcf(CROWDED, strict=True)
    assert from_mjcf(LEG, strict=True).ignored == {}


INERTIAL = '<inertial pos="0 0 0" mass="{}" diaginertia="{}"/>'


LINK = """<link name="{}"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>"""
LINKS = "".join(map(LINK.format, "abcd"))


def turning(parent: str, child: str) -> str:
    """A joint between two links."""
    return f"""<joint name="{parent}{child}" type="continuous"><parent link="{parent}"/>
    <child link="{child}"/><axis xyz="0 1 0"/></joint>"""


def test_unknown_elements_of_urdf_files_are_listed(tmp_path: Path) -> None:
    joints = turning("a", "b") + turning("b", "c") + turning("c", "d")
    odd = joints.replace("<axis", "<spring/><axis", 1)
    file = tmp_path / "arm.urdf"
    file.write_text(f'<robot name="r">{LINKS}{odd}<sensor/><gazebo><any/></gazebo></robot>')
    with pytest.warns(IgnoredElementsWarning, match="unknown element: joint/spring, robot/sensor"):
        robot = from_mjcf(file)
    assert robot.ignored == {"unknown element": ("joint/spring", "robot/sensor")}
    with pytest.raises(ValueError, match="cannot come along: unknown element: joint/spring"):
        from_mjcf(file, strict=True)


@ignoring
def test_urdf_is_refused_where_its_inertias_are_read_wrongly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "arm.urdf"
    file.write_text(f'<?xml version="1.0"?>\n<!-- an arm -->{urdf_arm()}', encoding="utf-8")
    assert len(from_mjcf(file).mechanism.system.coordinates) == 6
    monkeypatch.setattr(mujoco, "__version__", "3.13.0")
    for source in (file, urdf_arm()):
        with pytest.raises(ImportError, match=r"3\.14 or newer, but 3\.13\.0.*install -U mujoco"):
            from_mjcf(source)
    assert from_mjcf(DOUBLE_PENDULUM).ignored == {}


def test_meshes_that_only_show_bodies_are_not_read() -> None:
    shown = '<geom type="mesh" mesh="m" contype="0" conaffinity="0"/>'
    text = f"""
    <mujoco><asset><mesh name="m" file="missing.stl"/></asset><worldbody>
      <body name="mount">{shown}
        <body name="x"><joint/>{INERTIAL.format(1, "1 1 1")}{shown}</body></body>
    </worldbody></mujoco>"""
    assert from_mjcf(text, strict=True).mechanism.system.coordinates == ("joint0.angle",)
    with pytest.raises(ValueError, match=r"missing\.stl"):
        from_mjcf(text.replace(INERTIAL.format(1, "1 1 1"), ""))


def test_the_input_of_an_actuator_may_be_recorded() -> None:
    xml = """<mujoco><worldbody><body name="wheel"><joint name="axle" axis="0 0 1"/>
    <inertial pos="0 0 0" mass="1" diaginertia="0.5 0.5 0.5"/></body></worldbody>
    <actuator><motor name="drive" joint="axle"/></actuator></mujoco>"""
    wheel = from_mjcf(xml).mechanism
    drive = jm.Signal([0.0, 1.0], [0.0, 2.0])  # the torque 2 t, so the rate 2 t^2
    params = {**wheel.params, "ctrl.drive": drive}
    sol = jm.simulate(wheel.system, [0.0], [0.0], [0.0, 0.5, 1.0], params, steps=jm.FixedSteps(4))
    np.testing.assert_allclose(sol.v[:, 0], [0.0, 0.5, 2.0], atol=1e-14)
