"""Equilibria and steady motions: a single one, many, or a curve of them.

`root` solves the equations that `equilibrium` sets up, `root_known` for known numbers, with
coordinates `held` on request, and `assessment` determines the stability of the `result`.
`equilibria` collects those reached from many starts, `continuation` follows one along its `curve`
over a parameter into `branches`, and `root_locus` follows its eigenvalues.
"""

from jaxmech.analysis.equilibrium.assessment import Stability as Stability
from jaxmech.analysis.equilibrium.branches import Bifurcation as Bifurcation
from jaxmech.analysis.equilibrium.branches import Branch as Branch
from jaxmech.analysis.equilibrium.branches import SpecialPoint as SpecialPoint
from jaxmech.analysis.equilibrium.continuation import continuation as continuation
from jaxmech.analysis.equilibrium.equilibria import Equilibria as Equilibria
from jaxmech.analysis.equilibrium.equilibria import equilibria as equilibria
from jaxmech.analysis.equilibrium.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.equilibrium.result import Equilibrium as Equilibrium
from jaxmech.analysis.equilibrium.result import EquilibriumStatus as EquilibriumStatus
from jaxmech.analysis.equilibrium.root_locus import Crossing as Crossing
from jaxmech.analysis.equilibrium.root_locus import RootLocus as RootLocus
from jaxmech.analysis.equilibrium.root_locus import root_locus as root_locus
