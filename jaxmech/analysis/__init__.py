"""What can be said about a system beside its motion."""

from jaxmech.analysis.dependence import Dependence as Dependence
from jaxmech.analysis.findings import Finding as Finding
from jaxmech.analysis.findings import Severity as Severity
from jaxmech.analysis.inverse_dynamics import InverseDynamics as InverseDynamics
from jaxmech.analysis.inverse_dynamics import inverse_dynamics as inverse_dynamics
from jaxmech.analysis.report import Structure as Structure
from jaxmech.analysis.short_run import ShortRun as ShortRun
from jaxmech.analysis.structure import structure as structure
