"""Laws of motion and their solvers, to choose in `simulate` or to evaluate at a state."""

from jaxmech.equations import EquationsOfMotion as EquationsOfMotion
from jaxmech.formulations import Comparison as Comparison
from jaxmech.formulations import Contravariant as Contravariant
from jaxmech.formulations import CoordinatePartition as CoordinatePartition
from jaxmech.formulations import GaussPrinciple as GaussPrinciple
from jaxmech.formulations import LagrangeFirstKind as LagrangeFirstKind
from jaxmech.formulations import Maggi as Maggi
from jaxmech.formulations import Motion as Motion
from jaxmech.formulations import MultiplierFamily as MultiplierFamily
from jaxmech.formulations import Observation as Observation
from jaxmech.formulations import UdwadiaKalaba as UdwadiaKalaba
from jaxmech.formulations import christoffel_symbols as christoffel_symbols
from jaxmech.formulations import compare_formulations as compare_formulations
from jaxmech.formulations import gauss_function as gauss_function
from jaxmech.formulations import metric_tensor as metric_tensor
from jaxmech.formulations import multiplier_family as multiplier_family
from jaxmech.formulations import null_projector as null_projector
from jaxmech.linalg import LDL as LDL
from jaxmech.linalg import QR as QR
from jaxmech.linalg import SVD as SVD
