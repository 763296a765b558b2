"""Implicit methods for stiff systems: `Rodas5P` and `RadauIIA5`.

`methods` is the public interface, with the step of Rosenbrock methods. `radau` makes the other one,
with the linear systems of `jacobian`, which differentiates the constrained accelerations, and the
numbers of `coefficients`.
"""

from jaxmech.integrate.methods.implicit.jacobian import StepData as StepData
from jaxmech.integrate.methods.implicit.methods import AbstractImplicit as AbstractImplicit
from jaxmech.integrate.methods.implicit.methods import ImplicitStep as ImplicitStep
from jaxmech.integrate.methods.implicit.methods import RadauIIA5 as RadauIIA5
from jaxmech.integrate.methods.implicit.methods import Rodas5P as Rodas5P
from jaxmech.integrate.methods.implicit.methods import rounding as rounding
