"""What can be said about a system without a simulation: `structure` and its findings.

Each other file examines one thing: redundant constraints, the mass matrix, unused coordinates and
parameters, NaNs, the initial state, and a short run.
"""

from jaxmech.analysis.findings import Finding as Finding
from jaxmech.analysis.findings import Severity as Severity
from jaxmech.analysis.report import Structure as Structure
from jaxmech.analysis.row_dependence import Dependence as Dependence
from jaxmech.analysis.short_run import ShortRun as ShortRun
from jaxmech.analysis.structure import structure as structure
