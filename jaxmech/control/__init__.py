"""Given motions, and what actuators have to do for them."""

from jaxmech.control.given_motion import given_motion as given_motion
from jaxmech.control.inverse_dynamics import InverseDynamics as InverseDynamics
from jaxmech.control.inverse_dynamics import inverse_dynamics as inverse_dynamics
from jaxmech.control.servo import Servo as Servo
