"""Forces on bodies: weights, springs, dampers and loads, and forces in joints.

`basic` has gravity, springs, dampers, torques, applied forces and laws of force between two
bodies, made of `elements`; `in_joints` has servos and friction in joints.
"""

from jaxmech.parts.forces.basic import applied_force as applied_force
from jaxmech.parts.forces.basic import damper as damper
from jaxmech.parts.forces.basic import force_law as force_law
from jaxmech.parts.forces.basic import gravity as gravity
from jaxmech.parts.forces.basic import joint_spring as joint_spring
from jaxmech.parts.forces.basic import rotor as rotor
from jaxmech.parts.forces.basic import spring as spring
from jaxmech.parts.forces.basic import torque as torque
from jaxmech.parts.forces.basic import torsion_damper as torsion_damper
from jaxmech.parts.forces.basic import torsion_spring as torsion_spring
from jaxmech.parts.forces.in_joints import friction as friction
from jaxmech.parts.forces.in_joints import joint_force as joint_force
from jaxmech.parts.forces.in_joints import servo as servo
