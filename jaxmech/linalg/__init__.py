"""Small dense factorizations in plain `jnp`, independent of mechanics.

`base` is the interface of a solver of the constrained equations; `ldl`, `qr` and `svd` implement
it. `metric` puts one of them on top of `cholesky` and differentiates the solution without
differentiating a factorization; `saddle_point` is the same for the unsymmetric systems of implicit
steps, and `complementarity` solves inequalities. `pivots` chooses
dependent columns, `subspaces` computes null spaces and projectors, and `products` the products of
small matrices.
"""

from jaxmech.linalg.base import AbstractSolver as AbstractSolver
from jaxmech.linalg.base import unit as unit
from jaxmech.linalg.base import unit_rows as unit_rows
from jaxmech.linalg.cholesky import Cholesky as Cholesky
from jaxmech.linalg.cholesky import cholesky as cholesky
from jaxmech.linalg.complementarity import complementarity as complementarity
from jaxmech.linalg.ldl import LDL as LDL
from jaxmech.linalg.metric import Metric as Metric
from jaxmech.linalg.metric import coordinate_units as coordinate_units
from jaxmech.linalg.metric import metric as metric
from jaxmech.linalg.metric import row_weights as row_weights
from jaxmech.linalg.pivots import Pivots as Pivots
from jaxmech.linalg.products import diagonal as diagonal
from jaxmech.linalg.products import matvec as matvec
from jaxmech.linalg.products import max_abs as max_abs
from jaxmech.linalg.products import weighted_gram as weighted_gram
from jaxmech.linalg.qr import QR as QR
from jaxmech.linalg.qr import rows_on_host as rows_on_host
from jaxmech.linalg.saddle_point import SaddlePoint as SaddlePoint
from jaxmech.linalg.saddle_point import saddle_point as saddle_point
from jaxmech.linalg.subspaces import column_space_projector as column_space_projector
from jaxmech.linalg.subspaces import min_norm_solve as min_norm_solve
from jaxmech.linalg.subspaces import null_basis as null_basis
from jaxmech.linalg.subspaces import null_space as null_space
from jaxmech.linalg.svd import SVD as SVD
