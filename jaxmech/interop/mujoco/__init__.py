"""Mechanisms from MJCF and URDF files, which MuJoCo reads and compiles.

`from_mjcf` in `robot` returns a `Robot`, which also converts between coordinates and MuJoCo's qpos
and qvel. `source` compiles a file, explains what is wrong with it, and lists what has no
counterpart here, or is not used. `bodies` turns the tree into bodies and joints, fixed bodies
joined into those that move, with what they look like; `constraints` are equalities, stops and
ropes, and `forces` what acts on the joints, actuators included.
"""

from jaxmech.interop.mujoco.bodies import UnreadableMeshWarning as UnreadableMeshWarning
from jaxmech.interop.mujoco.robot import KINDS as KINDS
from jaxmech.interop.mujoco.robot import BodyPose as BodyPose
from jaxmech.interop.mujoco.robot import IgnoredElementsWarning as IgnoredElementsWarning
from jaxmech.interop.mujoco.robot import Keyframe as Keyframe
from jaxmech.interop.mujoco.robot import Robot as Robot
from jaxmech.interop.mujoco.robot import from_mjcf as from_mjcf
from jaxmech.interop.mujoco.source import compiled as compiled
from jaxmech.interop.mujoco.source import names_of as names_of
from jaxmech.interop.mujoco.source import spec_of as spec_of
from jaxmech.interop.mujoco.source import text_of as text_of
from jaxmech.interop.mujoco.source import unknown_elements as unknown_elements
from jaxmech.interop.mujoco.source import unused as unused
