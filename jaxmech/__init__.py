"""jaxmech: constrained mechanics in batches, from plain JAX functions."""

from jaxmech import models as models
from jaxmech.assemble import assemble as assemble
from jaxmech.constraints import Acceleration as Acceleration
from jaxmech.constraints import Holonomic as Holonomic
from jaxmech.constraints import Nonholonomic as Nonholonomic
from jaxmech.equations import EquationsOfMotion as EquationsOfMotion
from jaxmech.formulations import Motion as Motion
from jaxmech.formulations import UdwadiaKalaba as UdwadiaKalaba
from jaxmech.formulations import acceleration as acceleration
from jaxmech.formulations import null_projector as null_projector
from jaxmech.integrate import RK4 as RK4
from jaxmech.integrate import DormandPrince5 as DormandPrince5
from jaxmech.integrate import ForwardMode as ForwardMode
from jaxmech.integrate import Midpoint as Midpoint
from jaxmech.integrate import ReverseMode as ReverseMode
from jaxmech.linalg import LDL as LDL
from jaxmech.linalg import QR as QR
from jaxmech.linalg import SVD as SVD
from jaxmech.manifold import Baumgarte as Baumgarte
from jaxmech.manifold import Projection as Projection
from jaxmech.observe import Observation as Observation
from jaxmech.observe import observe as observe
from jaxmech.sensitivities import Sensitivities as Sensitivities
from jaxmech.sensitivities import sensitivities as sensitivities
from jaxmech.simulate import SimulationError as SimulationError
from jaxmech.simulate import simulate as simulate
from jaxmech.solution import Solution as Solution
from jaxmech.status import Status as Status
from jaxmech.system import System as System

__version__ = "0.1.0"
