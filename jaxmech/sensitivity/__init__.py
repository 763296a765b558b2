"""Derivatives of a motion: `forward` propagates them, `check` compares them with differences.

A check runs the motion, takes central `differences` and writes a `check_report`.
`tangents` are consistent changes of a state, and `nan_origins` finds where a NaN derivative comes
from.
"""

from jaxmech.sensitivity.check import check_gradients as check_gradients
from jaxmech.sensitivity.check_report import GradientCheck as GradientCheck
from jaxmech.sensitivity.forward import Sensitivities as Sensitivities
from jaxmech.sensitivity.forward import sensitivities as sensitivities
