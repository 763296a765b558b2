"""Derivatives of a motion: `forward` propagates them, `check` compares them with differences.

A check runs the motion, takes central differences and writes a `check_report`. `tangents` are
consistent changes of a state, and differences along them, and `nan_origins` finds where a NaN
derivative comes from.
"""

from jaxmech.sensitivity.check import check_gradients as check_gradients
from jaxmech.sensitivity.check_report import GradientCheck as GradientCheck
from jaxmech.sensitivity.forward import Sensitivities as Sensitivities
from jaxmech.sensitivity.forward import quickest_together as quickest_together
from jaxmech.sensitivity.forward import sensitivities as sensitivities
from jaxmech.sensitivity.forward import slopes_by_groups as slopes_by_groups
from jaxmech.sensitivity.nan_origins import REMEDY as REMEDY
from jaxmech.sensitivity.nan_origins import bad_slopes as bad_slopes
from jaxmech.sensitivity.nan_origins import functions_of as functions_of
from jaxmech.sensitivity.nan_origins import state_names as state_names
from jaxmech.sensitivity.tangents import consistent_change as consistent_change
