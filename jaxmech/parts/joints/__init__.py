"""Joints between the attitudes or points of bodies: hinge, slider, weld, shaft, ball, Cardan joint.

Each joint is a class with everything about it: its equations where it closes a loop, how it moves
a body by coordinates, the freedoms in which forces act, and how it is drawn. Its fields are its
arguments, checked by their kinds. Read `base`, `pair` and
`coordinates`, what all joints have, and the freedoms in which forces and stops act; `revolute`,
`prismatic` (and weld, planar), `cylindrical` (and screw), `spherical` (and universal, constant
velocity); and `checks` of bodies and axes.

    joint               equations and freedoms     made of
                        in the plane   in space
    revolute            2, 1           5, 1        Coincide, in space also Parallel
    prismatic           2, 1           5, 1        Across, RelativeAttitude
    weld                3, 0           6, 0        Coincide, RelativeAttitude
    cylindrical                        4, 2        Across, Parallel
    screw                              5, 1        Across, Parallel, ScrewSpeed
    planar                             3, 3        Level, Parallel
    spherical                          3, 3        Coincide
    universal                          4, 2        Coincide, Perpendicular
    constant_velocity                  4, 2        Coincide, EqualSpeeds

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b
(`joint_equations.py`).

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or axes that do not fit; the message names the joint.
"""

from jaxmech.parts.joint_equations import Across as Across
from jaxmech.parts.joint_equations import Coincide as Coincide
from jaxmech.parts.joint_equations import Level as Level
from jaxmech.parts.joint_equations import Parallel as Parallel
from jaxmech.parts.joint_equations import Perpendicular as Perpendicular
from jaxmech.parts.joint_equations import RelativeAngle as RelativeAngle
from jaxmech.parts.joint_equations import RelativeAttitude as RelativeAttitude
from jaxmech.parts.joints.base import EquationJoint as EquationJoint
from jaxmech.parts.joints.base import Joint as Joint
from jaxmech.parts.joints.base import Sliding as Sliding
from jaxmech.parts.joints.base import Turning as Turning
from jaxmech.parts.joints.coordinates import CoordinateJoint as CoordinateJoint
from jaxmech.parts.joints.coordinates import angle_about_axis as angle_about_axis
from jaxmech.parts.joints.coordinates import slid as slid
from jaxmech.parts.joints.coordinates import turn_about_axis as turn_about_axis
from jaxmech.parts.joints.cylindrical import cylindrical as cylindrical
from jaxmech.parts.joints.cylindrical import screw as screw
from jaxmech.parts.joints.pair import PairJoint as PairJoint
from jaxmech.parts.joints.prismatic import planar as planar
from jaxmech.parts.joints.prismatic import prismatic as prismatic
from jaxmech.parts.joints.prismatic import weld as weld
from jaxmech.parts.joints.revolute import revolute as revolute
from jaxmech.parts.joints.spherical import constant_velocity as constant_velocity
from jaxmech.parts.joints.spherical import spherical as spherical
from jaxmech.parts.joints.spherical import universal as universal
from jaxmech.parts.kinds import Attitude as Attitude
from jaxmech.parts.kinds import Direction as Direction
from jaxmech.parts.kinds import Number as Number
from jaxmech.parts.kinds import Positive as Positive
from jaxmech.parts.kinematics.base import Relation as Relation
