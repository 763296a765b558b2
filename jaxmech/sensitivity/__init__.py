"""Derivatives of a motion: `forward` carries them along, `check` compares them with differences.

`growth` shows how long they are meaningful in a chaotic system, and `nan_origins` finds where a NaN
derivative comes from.
"""

from jaxmech.sensitivity.check import check_gradients as check_gradients
from jaxmech.sensitivity.check_report import GradientCheck as GradientCheck
from jaxmech.sensitivity.forward import Sensitivities as Sensitivities
from jaxmech.sensitivity.forward import sensitivities as sensitivities
from jaxmech.sensitivity.growth import sensitivity_growth as sensitivity_growth
from jaxmech.sensitivity.growth_report import Growth as Growth
