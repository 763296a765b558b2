"""Implicit methods for stiff systems: `Rodas5P` and `RadauIIA5`.

`jacobian` has the linear systems with the Jacobian of the constrained accelerations, with
which `rosenbrock` and `radau` make a step; `methods` has what users see.
"""

from jaxmech.integrate.implicit.methods import AbstractImplicit as AbstractImplicit
from jaxmech.integrate.implicit.methods import RadauIIA5 as RadauIIA5
from jaxmech.integrate.implicit.methods import Rodas5P as Rodas5P
from jaxmech.integrate.implicit.methods import StepData as StepData
from jaxmech.integrate.implicit.methods import rounding as rounding
