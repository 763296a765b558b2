"""A motion: `simulate`, its `Solution`, and what `observe` tells of it.

`forward` propagates its derivatives, `gradient_check` compares them with central differences, and
finds where a derivative that is NaN comes from.
"""

from jaxmech.run.forward import Sensitivities as Sensitivities
from jaxmech.run.forward import quickest_together as quickest_together
from jaxmech.run.forward import sensitivities as sensitivities
from jaxmech.run.forward import slopes_by_groups as slopes_by_groups
from jaxmech.run.gradient_check import REMEDY as REMEDY
from jaxmech.run.gradient_check import GradientCheck as GradientCheck
from jaxmech.run.gradient_check import bad_slopes as bad_slopes
from jaxmech.run.gradient_check import check_gradients as check_gradients
from jaxmech.run.gradient_check import functions_of as functions_of
from jaxmech.run.gradient_check import state_names as state_names
from jaxmech.run.observe import observe as observe
from jaxmech.run.simulate import SimulationError as SimulationError
from jaxmech.run.simulate import simulate as simulate
from jaxmech.run.solution import TOO_COARSE as TOO_COARSE
from jaxmech.run.solution import Solution as Solution
