"""Joints between the attitudes or points of bodies: hinge, slider, weld, shaft, ball, Cardan joint.

Each joint is a class with everything about it: its equations where it closes a loop, how it moves
a body by coordinates, and the freedoms in which forces act. Its fields are its arguments, checked
by their kinds. Read `base`, what all joints have, `motions`, of which those with coordinates are
made, and `pairs`, what follows from them, and the joints.

    joint               equations and freedoms     motions
                        in the plane   in space
    revolute            2, 1           5, 1        Pin, Hinge
    prismatic           2, 1           5, 1        Slide, Rigid
    weld                3, 0           6, 0        Pin, Rigid
    cylindrical                        4, 2        Slide, Hinge
    screw                              5, 1        Thread, Hinge
    planar                             3, 3        Glide, Hinge
    spherical                          3, 3        Pin, Ball
    universal                          4, 2        Pin, Cross

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b
(`base.py`).

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or axes that do not fit; the message names the joint.
"""

from jaxmech.parts.joints.base import Joint as Joint
from jaxmech.parts.joints.base import PairJoint as PairJoint
from jaxmech.parts.joints.motions import AbstractRotation as AbstractRotation
from jaxmech.parts.joints.motions import Ball as Ball
from jaxmech.parts.joints.motions import Cross as Cross
from jaxmech.parts.joints.motions import Glide as Glide
from jaxmech.parts.joints.motions import Hinge as Hinge
from jaxmech.parts.joints.motions import Pin as Pin
from jaxmech.parts.joints.motions import Rigid as Rigid
from jaxmech.parts.joints.motions import Slide as Slide
from jaxmech.parts.joints.motions import Thread as Thread
from jaxmech.parts.joints.pairs import CoordinateJoint as CoordinateJoint
from jaxmech.parts.kinds import Attitude as Attitude
from jaxmech.parts.kinds import Direction as Direction
from jaxmech.parts.kinds import Number as Number
from jaxmech.parts.kinds import Positive as Positive
from jaxmech.parts.kinematics import Relation as Relation
