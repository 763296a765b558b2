"""Models in MJCF for the tests: trees and loops with all that `from_mjcf` takes over."""

DOUBLE_PENDULUM = """
<mujoco>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0" damping="0.1" stiffness="2" springref="30" ref="20"
             armature="0.05"/>
      <geom type="capsule" fromto="0 0 0 0.3 0 -0.4" size="0.03"/>
      <body name="lower" pos="0.3 0 -0.4" quat="0.9 0.1 0.3 -0.2">
        <joint name="elbow" axis="0.2 1 0.1" pos="0.01 0.02 0.03"/>
        <inertial pos="0.1 0 -0.2" mass="0.7" fullinertia="0.02 0.03 0.015 0.002 -0.003 0.001"/>
        <site name="tip" pos="0 0 -0.4" euler="10 20 30"/>
      </body>
    </body>
  </worldbody>
  <keyframe><key name="bent" qpos="0.5 -0.7" qvel="0.1 0.2"/></keyframe>
</mujoco>
"""

FOUR_BAR = """
<mujoco>
  <worldbody>
    <body name="crank">
      <joint name="drive" axis="0 -1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.4" size="0.02"/>
      <body name="coupler" pos="0 0 0.4">
        <joint name="knee" axis="0 -1 0"/>
        <geom type="capsule" fromto="0 0 0 1 0 0.4" size="0.02"/>
        <site name="end" pos="1 0 0.4"/>
      </body>
    </body>
    <body name="rocker" pos="1 0 0">
      <joint name="pivot" axis="0 -1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 0.8" size="0.02"/>
    </body>
  </worldbody>
  <equality><connect name="pin" body1="coupler" body2="rocker" anchor="1 0 0.4"/></equality>
  <contact><exclude body1="coupler" body2="rocker"/></contact>
</mujoco>
"""

# Two legs of one platform that is free in space: balls below, hinges as knees, and a weld.
LEG = """
<mujoco>
  <worldbody>
    <body name="thigh" pos="0 0 0">
      <joint name="hip" type="ball" damping="0.3" frictionloss="0.1"/>
      <inertial pos="0 0 0.2" mass="1.2" diaginertia="0.02 0.021 0.003"/>
      <body name="shank" pos="0 0 0.4" euler="0 30 0">
        <joint name="lift" type="slide" axis="0 0 1" ref="0.1" stiffness="20" springref="0.05"/>
        <joint name="knee" axis="0 1 0" pos="0 0 0.05" ref="10" damping="0.4" armature="0.01"/>
        <joint name="twist" axis="0 0 1" frictionloss="0.2"/>
        <inertial pos="0 0.01 0.2" mass="0.8" diaginertia="0.015 0.014 0.002" euler="10 5 0"/>
        <body name="foot" pos="0 0 0.4" euler="0 0 40">
          <inertial pos="0.05 0 0" mass="0.3" diaginertia="0.001 0.002 0.002"/>
          <site name="sole" pos="0 0 0.05" euler="0 20 0"/>
        </body>
      </body>
    </body>
    <body name="platform" pos="0.2 0 0.9" euler="5 0 0">
      <freejoint name="float"/>
      <inertial pos="0.02 0 0" mass="2" diaginertia="0.05 0.06 0.09"/>
      <body name="flag" pos="0 0.1 0" gravcomp="0.5">
        <joint name="mast" axis="1 0 0"/>
        <inertial pos="0 0 0.1" mass="0.2" diaginertia="0.001 0.001 0.001"/>
      </body>
    </body>
    <site name="mark" pos="0.1 0.2 0.3"/>
  </worldbody>
  <equality>
    <weld name="ankle" body1="foot" body2="platform" anchor="0.1 0 0"
          relpose="0 0 0.1 0.9 0 0.2 0.1"/>
    <joint name="cam" joint1="twist" joint2="lift" polycoef="0.1 0.5 -0.3 0.2 0.7"/>
  </equality>
  <actuator>
    <motor name="push" joint="lift" gear="3"/>
    <position name="bend" joint="knee" kp="12" kv="0.5" gear="2"/>
    <general name="turn" joint="twist" gaintype="affine" gainprm="2 0.3 0.1" biastype="affine"
             biasprm="0.1 -3 -0.2" ctrlrange="-1 1" forcerange="-4 4"/>
  </actuator>
</mujoco>
"""

ARM = """
<mujoco>
  <default><joint armature="0.1" damping="1"/></default>
  <worldbody>
    <body name="base">
      <geom type="cylinder" size="0.1 0.05"/>
      <body name="link1" pos="0 0 0.3"><joint name="j1" axis="0 0 1"/>
        <geom type="capsule" size="0.05" fromto="0 0 0 0.1 0 0.1"/>
        <body name="link2" pos="0.1 0 0.1" quat="1 1 0 0"><joint name="j2" axis="0 0 1"/>
          <geom type="capsule" size="0.05" fromto="0 0 0 0 0.5 0"/>
          <body name="link3" pos="0 0.5 0"><joint name="j3" axis="0 0 1"/>
            <geom type="capsule" size="0.04" fromto="0 0 0 0.2 0 0"/>
            <body name="link4" pos="0.2 0 0" quat="1 0 1 0"><joint name="j4" axis="0 0 1"/>
              <geom type="capsule" size="0.04" fromto="0 0 0 0 0 0.3"/>
              <body name="link5" pos="0 0 0.3" quat="1 -1 0 0"><joint name="j5" axis="0 0 1"/>
                <geom type="capsule" size="0.03" fromto="0 0 0 0.1 0 0"/>
                <body name="link6" pos="0.1 0 0"><joint name="j6" axis="1 0 0"/>
                  <geom type="box" size="0.02 0.05 0.03" pos="0.05 0.01 0"/>
                  <site name="flange" pos="0.1 0 0"/>
                </body></body></body></body></body></body>
    </body>
  </worldbody>
</mujoco>
"""

URDF_ARM = """
<robot name="arm">
  <link name="base"><inertial><origin xyz="0 0 0.1" rpy="0 0 0"/><mass value="4"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="package://arm/base.stl"/></geometry></visual></link>
%s
  <link name="tool"/>
  <joint name="flange" type="fixed"><parent link="link6"/><child link="tool"/>
    <origin xyz="0.02 0 0.1" rpy="0.1 0.2 0.3"/></joint>
</robot>
"""

_LINK = """
  <link name="link{k}"><inertial><origin xyz="0.0{k} 0.02 0.1" rpy="0.{k} 0.1 0"/>
    <mass value="{m}"/>
    <inertia ixx="0.03" iyy="0.02" izz="0.02{k}" ixy="0.001" ixz="-0.002" iyz="0.0015"/></inertial>
    <visual><geometry><mesh filename="package://arm/link{k}.stl"/></geometry></visual></link>
  <joint name="joint{k}" type="{kind}"><parent link="{parent}"/><child link="link{k}"/>
    <origin xyz="0.05 0 0.2" rpy="{roll} 0.2 -0.1"/><axis xyz="{axis}"/>
    <limit lower="-3" upper="3" effort="100" velocity="3"/></joint>
"""


def urdf_arm() -> str:
    """A robot with six axes, one of which slides."""
    axes = ("0 0 1", "0 1 0", "0 1 0", "1 0 0", "0 1 0", "0.6 0 0.8")
    links = [
        _LINK.format(
            k=k,
            m=3 / k,
            kind="prismatic" if k == 3 else "revolute",
            parent="base" if k == 1 else f"link{k - 1}",
            roll=0.3 * k,
            axis=axis,
        )
        for k, axis in enumerate(axes, start=1)
    ]
    return URDF_ARM % "".join(links)
