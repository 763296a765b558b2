"""Steady motions: where they are, how small deviations from them behave, what is conserved."""

from jaxmech.analysis.stability.assessment import Stability as Stability
from jaxmech.analysis.stability.conserved import Conserved as Conserved
from jaxmech.analysis.stability.conserved import conserved as conserved
from jaxmech.analysis.stability.continuation import Bifurcation as Bifurcation
from jaxmech.analysis.stability.continuation import Branch as Branch
from jaxmech.analysis.stability.continuation import SpecialPoint as SpecialPoint
from jaxmech.analysis.stability.continuation import continuation as continuation
from jaxmech.analysis.stability.equilibria import Equilibria as Equilibria
from jaxmech.analysis.stability.equilibria import equilibria as equilibria
from jaxmech.analysis.stability.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.stability.equilibrium_result import Equilibrium as Equilibrium
from jaxmech.analysis.stability.equilibrium_result import EquilibriumStatus as EquilibriumStatus
from jaxmech.analysis.stability.floquet import Floquet as Floquet
from jaxmech.analysis.stability.floquet import floquet as floquet
from jaxmech.analysis.stability.linearization import Linearization as Linearization
from jaxmech.analysis.stability.linearization import StateSpace as StateSpace
from jaxmech.analysis.stability.linearize import linearize as linearize
from jaxmech.analysis.stability.modes import Modes as Modes
from jaxmech.analysis.stability.modes import modes as modes
from jaxmech.analysis.stability.root_locus import RootLocus as RootLocus
from jaxmech.analysis.stability.root_locus import root_locus as root_locus
from jaxmech.analysis.stability.symmetries import Symmetries as Symmetries
from jaxmech.analysis.stability.symmetries import symmetries as symmetries
