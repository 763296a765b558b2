"""Parts of mechanisms: bodies, joints and forces that compose into a `System`.

Read in this order. `values` and `vectors` are numbers and geometry, `body` and `rigid_bodies` the
bodies, made of `solids`. `kinds` are those of the arguments of joints and forces, which are classes
whose fields are their arguments. `joints` can have coordinates, `couplings` are always constraints,
and `gaps` are stops, ropes and bodies that touch and part. `kinematics` says where bodies are, in
coordinates of their own or in those of joints along a `tree`, and `dynamics` has M and Q in the
latter, by `inertia`. `forces` act on bodies and `joint_forces` in joints, and `joint_loads` are
what joints exert. `equations` makes the system of a `mechanism`; `jaxmech.plot` draws it.
"""

from jaxmech.parts import vectors as vectors
from jaxmech.parts.body import AbstractBody as AbstractBody
from jaxmech.parts.body import Frame as Frame
from jaxmech.parts.body import Start as Start
from jaxmech.parts.body import ground as ground
from jaxmech.parts.body import point_mass as point_mass
from jaxmech.parts.couplings import belt as belt
from jaxmech.parts.couplings import distance as distance
from jaxmech.parts.couplings import gear as gear
from jaxmech.parts.couplings import given_angle as given_angle
from jaxmech.parts.couplings import given_position as given_position
from jaxmech.parts.couplings import knife_edge as knife_edge
from jaxmech.parts.couplings import point_on_line as point_on_line
from jaxmech.parts.couplings import point_on_plane as point_on_plane
from jaxmech.parts.couplings import rack as rack
from jaxmech.parts.couplings import rolling_disk as rolling_disk
from jaxmech.parts.couplings import rolling_sphere as rolling_sphere
from jaxmech.parts.couplings import rolling_wheel as rolling_wheel
from jaxmech.parts.dynamics import MassAndForce as MassAndForce
from jaxmech.parts.equations import EnergyDifference as EnergyDifference
from jaxmech.parts.forces import CoordinateSprings as CoordinateSprings
from jaxmech.parts.forces import Rotors as Rotors
from jaxmech.parts.forces import Support as Support
from jaxmech.parts.forces import applied_force as applied_force
from jaxmech.parts.forces import damper as damper
from jaxmech.parts.forces import force_law as force_law
from jaxmech.parts.forces import gravity as gravity
from jaxmech.parts.forces import joint_spring as joint_spring
from jaxmech.parts.forces import rotor as rotor
from jaxmech.parts.forces import spring as spring
from jaxmech.parts.forces import torque as torque
from jaxmech.parts.forces import torsion_damper as torsion_damper
from jaxmech.parts.forces import torsion_spring as torsion_spring
from jaxmech.parts.gaps import contact as contact
from jaxmech.parts.gaps import dry_friction as dry_friction
from jaxmech.parts.gaps import rope as rope
from jaxmech.parts.gaps import stop as stop
from jaxmech.parts.joint_forces import friction as friction
from jaxmech.parts.joint_forces import joint_force as joint_force
from jaxmech.parts.joint_forces import servo as servo
from jaxmech.parts.joints.base import Joint as Joint
from jaxmech.parts.joints.pairs import cylindrical as cylindrical
from jaxmech.parts.joints.pairs import planar as planar
from jaxmech.parts.joints.pairs import prismatic as prismatic
from jaxmech.parts.joints.pairs import revolute as revolute
from jaxmech.parts.joints.pairs import screw as screw
from jaxmech.parts.joints.pairs import spherical as spherical
from jaxmech.parts.joints.pairs import universal as universal
from jaxmech.parts.joints.pairs import weld as weld
from jaxmech.parts.mechanism import Mechanism as Mechanism
from jaxmech.parts.rigid_bodies import AbstractRigidBody as AbstractRigidBody
from jaxmech.parts.rigid_bodies import planar_body as planar_body
from jaxmech.parts.rigid_bodies import spatial_body as spatial_body
from jaxmech.parts.solids import Visual as Visual
from jaxmech.parts.solids import slender_rod as slender_rod
from jaxmech.parts.solids import solid_box as solid_box
from jaxmech.parts.solids import solid_cylinder as solid_cylinder
from jaxmech.parts.solids import solid_sphere as solid_sphere
from jaxmech.parts.tree import spanning_tree as spanning_tree
from jaxmech.parts.values import Reader as Reader
from jaxmech.parts.vectors import quaternion as quaternion

__all__ = [
    "Frame",
    "Joint",
    "Mechanism",
    "Start",
    "Visual",
    "applied_force",
    "belt",
    "contact",
    "cylindrical",
    "damper",
    "distance",
    "force_law",
    "friction",
    "gear",
    "given_angle",
    "given_position",
    "gravity",
    "ground",
    "joint_force",
    "joint_spring",
    "knife_edge",
    "planar",
    "planar_body",
    "point_mass",
    "point_on_line",
    "point_on_plane",
    "prismatic",
    "quaternion",
    "rack",
    "revolute",
    "rolling_disk",
    "rolling_sphere",
    "rolling_wheel",
    "rope",
    "rotor",
    "screw",
    "servo",
    "slender_rod",
    "solid_box",
    "solid_cylinder",
    "solid_sphere",
    "spatial_body",
    "spherical",
    "spring",
    "stop",
    "torque",
    "torsion_damper",
    "torsion_spring",
    "universal",
    "weld",
]
