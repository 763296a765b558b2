"""Equilibria and steady motions: a single one, or many.

`root` solves the equations that `equilibrium` sets up, traced or known ones, with
coordinates `held` on request, and `assessment` determines the stability of the `result`.
`equilibria` collects those reached from many starts.
"""

from jaxmech.analysis.equilibrium.assessment import Stability as Stability
from jaxmech.analysis.equilibrium.equilibria import Equilibria as Equilibria
from jaxmech.analysis.equilibrium.equilibria import equilibria as equilibria
from jaxmech.analysis.equilibrium.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.equilibrium.result import Equilibrium as Equilibrium
from jaxmech.analysis.equilibrium.result import EquilibriumStatus as EquilibriumStatus
