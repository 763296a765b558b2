"""Equilibria and steady motions: a single one, or many.

`equilibrium` lets `root` solve the equations of `problem`, traced or known ones, into a `result`
with its stability. `equilibria` collects those reached from many starts.
"""

from jaxmech.analysis.equilibrium.equilibria import Equilibria as Equilibria
from jaxmech.analysis.equilibrium.equilibria import equilibria as equilibria
from jaxmech.analysis.equilibrium.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.equilibrium.result import Equilibrium as Equilibrium
from jaxmech.analysis.equilibrium.result import EquilibriumStatus as EquilibriumStatus
from jaxmech.analysis.equilibrium.result import Stability as Stability
