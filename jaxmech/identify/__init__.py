"""Parameters from recordings: fits, their uncertainty, and parameters that remain undetermined.

In the order in which a fit goes through them: `fit` has its arguments, `recording` and `table` the
data; `parameters` has the numbers to fit, `problem` their residuals, `segments` the motions that
are simulated, and `noise` their weights; `optimize` minimizes, `uncertainty` assesses the end, and
`result` is what is made of it.
"""

from jaxmech.config.errors import TableError as TableError
from jaxmech.identify.fit import Identifiable as Identifiable
from jaxmech.identify.fit import Settings as Settings
from jaxmech.identify.fit import fit as fit
from jaxmech.identify.noise import Outliers as Outliers
from jaxmech.identify.optimize import MultiStart as MultiStart
from jaxmech.identify.optimize import TrustRegion as TrustRegion
from jaxmech.identify.parameters import bodies_of as bodies_of
from jaxmech.identify.problem import Huber as Huber
from jaxmech.identify.recording import Recording as Recording
from jaxmech.identify.result import Density as Density
from jaxmech.identify.result import Fit as Fit
from jaxmech.identify.result import Predicted as Predicted
from jaxmech.identify.segments import Shooting as Shooting
from jaxmech.identify.table import Recordings as Recordings
from jaxmech.identify.table import Table as Table
from jaxmech.identify.table import read_table as read_table
from jaxmech.identify.uncertainty import Covariance as Covariance
from jaxmech.identify.uncertainty import Identifiability as Identifiability
from jaxmech.identify.uncertainty import Uncertainty as Uncertainty

__all__ = [
    "Covariance",
    "Density",
    "Fit",
    "Huber",
    "Identifiability",
    "Identifiable",
    "MultiStart",
    "Outliers",
    "Recording",
    "Settings",
    "Shooting",
    "Table",
    "TableError",
    "TrustRegion",
    "Uncertainty",
    "fit",
    "read_table",
]
