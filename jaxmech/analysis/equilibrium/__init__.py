"""Where a system is at rest or in steady motion: one state, many, or a curve of them.

`root` solves the equations that `equilibrium` sets up, with coordinates `held` if asked, and
`assessment` says whether the `result` is stable. `equilibria` collects those of many starts,
`continuation` follows one along its `curve` over a parameter into `branches`, and `root_locus` its
eigenvalues.
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
