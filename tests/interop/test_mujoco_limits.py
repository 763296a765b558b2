"""Limits of joints and tendons of MJCF as stops, inequalities and ropes."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

pytest.importorskip("mujoco")
from jaxmech.cli.audit import audit
from jaxmech.interop.mujoco import IgnoredElementsWarning, from_mjcf

LIMITED = """
<mujoco>
  <worldbody>
    <site name="hook" pos="0 0 1"/>
    <body name="arm"><joint name="elbow" axis="0 1 0" limited="true" range="-30 90"/>
      <inertial pos="1 0 0" mass="2" diaginertia="0.1 0.1 0.1"/></body>
    <body name="cart" pos="0 1 0"><joint name="rail" type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/></body>
    <body name="bob" pos="0 0 0.4"><joint name="rope" type="slide" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="3" diaginertia="0.1 0.1 0.1"/><site name="eye"/></body>
  </worldbody>
  <tendon>
    <spatial name="cord" limited="true" range="0 0.7">
      <site site="hook"/><site site="eye"/></spatial>
    <fixed name="cable" limited="true" range="-1 0.5"><joint joint="elbow" coef="2"/>
      <joint joint="rail" coef="1"/></fixed>
    <spatial name="spring" stiffness="1"><site site="hook"/><site site="eye"/></spatial>
  </tendon>
</mujoco>
"""


def test_limits_of_joints_and_tendons_hold() -> None:
    """The falling arm pulls the cart by the cable, and the bob comes to hang on its cord."""
    with pytest.warns(IgnoredElementsWarning, match="left out of the model: tendon: spring"):
        robot = from_mjcf(LIMITED, limits=True)
    names = [gap.name for gap in robot.system.unilateral]
    assert names == ["elbow.limit", "cord.limit", "cable.limit"]
    q0, v0 = robot.start
    ts, steps = jnp.linspace(0.0, 2.0, 21), jm.FixedSteps(per_save=8)
    sol = jm.simulate(robot, q0, v0, ts, steps=steps)
    named = robot.system.named(sol.q)
    elbow, cable = named["elbow.angle"], 2 * named["elbow.angle"] + named["rail.position"]
    assert (elbow > -np.pi / 6 - 1e-9).all()
    assert (elbow < np.pi / 2 + 1e-9).all()
    assert (cable > -1 - 1e-9).all()
    assert (cable < 0.5 + 1e-9).all()
    assert sol.events is not None
    assert sol.events["cable.limit[1] closes"].count == 1
    np.testing.assert_allclose(named["rope.position"][-1], -0.1, atol=1e-9)
    seen = jm.observe(robot, sol)
    np.testing.assert_allclose(seen.multipliers["cord.limit"][-1], [3 * 9.81], rtol=1e-9)


URDF = """
<robot name="lift"><link name="base"/>
  <link name="arm"><inertial><origin xyz="1 0 0"/><mass value="2"/>
    <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="tool"><inertial><origin xyz="1 0 0"/><mass value="1"/>
    <inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="elbow" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
    <limit lower="-0.5" upper="1.5" effort="10" velocity="1"/></joint>
  <joint name="reach" type="prismatic"><parent link="arm"/><child link="tool"/><axis xyz="1 0 0"/>
    <limit lower="-0.1" upper="0.4" effort="10" velocity="1"/></joint>
</robot>
"""


@pytest.mark.slow
def test_limits_of_urdf_joints_are_stops() -> None:
    robot = from_mjcf(URDF, limits=True)
    gaps = {gap.name: gap.constraint for gap in robot.system.unilateral}
    values = [gaps[name].value(jnp.array([1.2, 0.3]), jnp.zeros(()), {}) for name in gaps]
    assert [*gaps] == ["elbow.limit", "reach.limit"]
    np.testing.assert_allclose(values, [[1.7, 0.3], [0.4, 0.1]], rtol=1e-12)


ROUGH = """
<mujoco>
  <worldbody>
    <body name="arm"><joint name="elbow" axis="0 1 0" frictionloss="20"/>
      <inertial pos="1 0 0" mass="2" diaginertia="0.1 0.1 0.1"/></body>
    <body name="cart" pos="0 1 0"><joint name="rail" type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.1 0.1 0.1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.mark.slow
def test_friction_of_joints_sticks() -> None:
    """The arm holds its weight of 2 g N m up to a frictionloss of 20 N m."""
    robot = from_mjcf(ROUGH, limits=True, params=("frictionloss",))
    names = [part.name for part in robot.system.unilateral]
    assert names == ["elbow.friction", "rail.friction"]
    ts, steps = jnp.linspace(0.0, 0.2, 3), jm.FixedSteps(per_save=4)
    for limit, moves in ((20.0, False), (19.0, True)):
        params = dict(robot.params) | {"frictionloss.elbow": limit}
        sol = jm.simulate(robot, *robot.start, ts, params, steps=steps)
        assert bool(robot.system.named(sol.q)["elbow.angle"].any()) == moves


def test_limits_are_left_out_by_default() -> None:
    with pytest.warns(IgnoredElementsWarning) as shown:
        robot = from_mjcf(LIMITED)
    assert robot.ignored == {"joint limit": ("elbow",), "tendon": ("cord", "cable", "spring")}
    assert len(shown) == 1
    assert robot.system.unilateral == ()


WINDING = """
<mujoco>
  <worldbody>
    <site name="hook" pos="0 0 1"/><geom name="drum" type="cylinder" size="0.1 1" contype="0"/>
    <body name="bob" pos="0 0 0.4"><joint name="rope" type="slide" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="3" diaginertia="0.1 0.1 0.1"/><site name="eye"/></body>
  </worldbody>
  <tendon>
    <spatial name="round" limited="true" range="0 0.7">
      <site site="hook"/><geom geom="drum"/><site site="eye"/></spatial>
    <spatial name="lifted" limited="true" range="0 0.7">
      <site site="hook"/><site site="eye"/><pulley divisor="2"/>
      <site site="hook"/><site site="eye"/></spatial>
  </tendon>
</mujoco>
"""


def test_tendons_that_wind_round_geoms_are_named(tmp_path: Path) -> None:
    (tmp_path / "winch.xml").write_text(WINDING)
    report = str(audit(tmp_path / "winch.xml"))
    for line in ("tendon around geoms: round\n", "tendon with pulleys: lifted"):
        assert line in report
