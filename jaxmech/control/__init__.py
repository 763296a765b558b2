"""Prescribed motions, and the inputs of actuators that produce them.

`given_motion` is a constraint that prescribes a motion, and `inverse_dynamics` computes the inputs
of actuators along a given path. `kinematics` is the motion along the range of a driver, and says
where it cannot go on. `sampled` has controllers with a sample time. `optimize` finds the best
controls and parameters, by multiple `shooting`.
"""

from jaxmech.control.given_motion import given_motion as given_motion
from jaxmech.control.inverse_dynamics import InverseDynamics as InverseDynamics
from jaxmech.control.inverse_dynamics import inverse_dynamics as inverse_dynamics
from jaxmech.control.kinematics import Kinematics as Kinematics
from jaxmech.control.kinematics import KinematicStatus as KinematicStatus
from jaxmech.control.kinematics import kinematics as kinematics
from jaxmech.control.optimize import Optimum as Optimum
from jaxmech.control.optimize import OptimumStatus as OptimumStatus
from jaxmech.control.optimize import optimize as optimize
from jaxmech.control.sampled import MEMORY as MEMORY
from jaxmech.control.sampled import Controller as Controller
from jaxmech.control.sampled import controlled as controlled

__all__ = [
    "Controller",
    "InverseDynamics",
    "KinematicStatus",
    "Kinematics",
    "Optimum",
    "OptimumStatus",
    "controlled",
    "given_motion",
    "inverse_dynamics",
    "kinematics",
    "optimize",
]
