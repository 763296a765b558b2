"""Parameters from recordings: fits, their uncertainty, and parameters that remain undetermined.

In the order in which a fit goes through them: `identifiable` holds its arguments, `data/` its
recordings; `problem/` makes residuals of them, `optimize/` minimizes these, `inference/` assesses
the end, `outcome` makes the `result` of it, and `fit` puts all of this together. `storage` is how a
fit is saved.
"""

from jaxmech.config import TableError as TableError
from jaxmech.identify.data.recording import Recording as Recording
from jaxmech.identify.data.segments import Shooting as Shooting
from jaxmech.identify.data.table import Recordings as Recordings
from jaxmech.identify.data.table import Table as Table
from jaxmech.identify.data.table import read_table as read_table
from jaxmech.identify.fit import fit as fit
from jaxmech.identify.identifiable import Identifiable as Identifiable
from jaxmech.identify.identifiable import Settings as Settings
from jaxmech.identify.inference.density import Density as Density
from jaxmech.identify.inference.identifiability import Identifiability as Identifiability
from jaxmech.identify.inference.misfit import Outliers as Outliers
from jaxmech.identify.inference.uncertainty import Covariance as Covariance
from jaxmech.identify.inference.uncertainty import Uncertainty as Uncertainty
from jaxmech.identify.optimize.trust_region import MultiStart as MultiStart
from jaxmech.identify.optimize.trust_region import TrustRegion as TrustRegion
from jaxmech.identify.problem.body_inertia import bodies_of as bodies_of
from jaxmech.identify.problem.noise import Huber as Huber
from jaxmech.identify.result import Fit as Fit
from jaxmech.identify.result import Predicted as Predicted

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
