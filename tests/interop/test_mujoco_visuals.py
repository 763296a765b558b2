"""What the bodies of MJCF and URDF files look like."""

import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

from jaxmech.geometry import Solid  # noqa: E402
from jaxmech.interop.mujoco import Robot, UnreadableMeshWarning, from_mjcf  # noqa: E402

MJCF = """<mujoco><worldbody>
<geom name="base" type="cylinder" size="0.2 0.05"/>
<body name="arm" pos="0 0 1"><joint name="j" axis="0 1 0"/>
  <geom type="capsule" fromto="0 0 0 1 0 0" size="0.1" mass="1" rgba="1 0 0 1"/>
  <geom type="box" size="1 1 1" mass="0" group="3"/>
  <geom type="sphere" size="9" mass="0" rgba="0 0 0 0"/>
  <body name="tool" pos="1 0 0" euler="0 0 90">
    <geom type="box" size="0.3 0.1 0.05" mass="1"/>
    <geom type="mesh" mesh="cube" mass="0"/>
  </body></body></worldbody>
<asset><mesh name="cube" vertex="2 0 0 3 0 0 2 1 0 2 0 1"/></asset></mujoco>"""

URDF = """<robot name="r">
<link name="base"><collision><geometry><box size="1 1 0.1"/></geometry></collision></link>
<link name="arm">
  <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
  <collision><origin xyz="0 0 1" rpy="0 0 1.5707963"/><geometry><box size="0.2 0.4 0.6"/></geometry>
  </collision></link>
<joint name="j" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
  <limit effort="1" velocity="1" lower="-1" upper="1"/></joint></robot>"""


def solids(robot: Robot, *names: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The corners of the boxes around solids in the reference pose, lower and upper."""
    shapes = robot.mechanism.geometry(robot.start[0], 0.0, dict(robot.params))
    corners = []
    for name in names:
        shape = shapes[name]
        assert isinstance(shape, Solid)
        points = np.asarray(shape.origin)[None] + np.asarray(shape.vertices @ shape.axes.T)
        corners.append((points.min(axis=0), points.max(axis=0)))
    return corners


@pytest.mark.filterwarnings("ignore:left out of the model")
def test_geoms_are_drawn_on_the_bodies_that_carry_them() -> None:
    robot = from_mjcf(MJCF)
    (body,) = robot.mechanism.bodies
    assert [visual.kind for visual in body.visual] == ["capsule", "box", "mesh"]
    assert [visual.color for visual in body.visual] == [(1.0, 0.0, 0.0), None, None]
    capsule, box, mesh, base = solids(robot, "arm", "arm.2", "arm.3", "ground.0")
    np.testing.assert_allclose(capsule, [[-0.1, -0.1, 0.9], [1.1, 0.1, 1.1]], atol=1e-2)
    np.testing.assert_allclose(box, [[0.9, -0.3, 0.95], [1.1, 0.3, 1.05]], atol=1e-5)
    np.testing.assert_allclose(mesh, [[0.0, 2.0, 1.0], [1.0, 3.0, 2.0]], atol=1e-5)
    np.testing.assert_allclose(base, [[-0.2, -0.2, -0.05], [0.2, 0.2, 0.05]], atol=1e-5)


@pytest.mark.filterwarnings("ignore:left out of the model")
def test_urdf_files_are_drawn_by_their_collisions() -> None:
    arm, base = solids(from_mjcf(URDF), "arm", "ground.0")
    np.testing.assert_allclose(arm, [[-0.2, -0.1, 0.7], [0.2, 0.1, 1.3]], atol=1e-5)
    np.testing.assert_allclose(base, [[-0.5, -0.5, -0.05], [0.5, 0.5, 0.05]], atol=1e-6)


@pytest.mark.filterwarnings("ignore:left out of the model")
def test_a_mesh_of_an_mjcf_file_that_is_not_there_is_named() -> None:
    inertial = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
    text = MJCF.replace('vertex="2 0 0 3 0 0 2 1 0 2 0 1"', 'file="nowhere.stl"')
    text = text.replace('axis="0 1 0"/>', f'axis="0 1 0"/>{inertial}')
    text = text.replace('euler="0 0 90">', f'euler="0 0 90">{inertial}')
    with pytest.warns(UnreadableMeshWarning, match=r"nowhere\.stl"):
        robot = from_mjcf(text)
    assert len(robot.mechanism.bodies) == 1
