"""Equilibria and steady motions.

`equilibrium` lets `root` solve the equations of `problem`, traced or known ones, into a `result`
with its stability.
"""

from jaxmech.analysis.equilibrium.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.equilibrium.result import Equilibrium as Equilibrium
from jaxmech.analysis.equilibrium.result import EquilibriumStatus as EquilibriumStatus
from jaxmech.analysis.equilibrium.result import Stability as Stability
