"""Laws of motion and their solvers, to choose in `simulate` or to evaluate at a state.

One law a file, from M, Q, A and b to accelerations and multipliers. Read `base`, the interface,
with `regular` for a singular M, then `udwadia_kalaba`, the default.
"""

from jaxmech.laws.acceleration import Motion as Motion
from jaxmech.laws.acceleration import MultiplierFamily as MultiplierFamily
from jaxmech.laws.acceleration import Observation as Observation
from jaxmech.laws.acceleration import acceleration as acceleration
from jaxmech.laws.acceleration import multiplier_family as multiplier_family
from jaxmech.laws.acceleration import null_projector as null_projector
from jaxmech.laws.acceleration import observed_at as observed_at
from jaxmech.laws.base import AbstractFormulation as AbstractFormulation
from jaxmech.laws.base import Law as Law
from jaxmech.laws.base import Partition as Partition
from jaxmech.laws.base import regular as regular
from jaxmech.laws.contravariant import Contravariant as Contravariant
from jaxmech.laws.contravariant import christoffel_symbols as christoffel_symbols
from jaxmech.laws.contravariant import metric_tensor as metric_tensor
from jaxmech.laws.coordinate_partition import CoordinatePartition as CoordinatePartition
from jaxmech.laws.gauss import GaussPrinciple as GaussPrinciple
from jaxmech.laws.gauss import gauss_function as gauss_function
from jaxmech.laws.lagrange_first_kind import LagrangeFirstKind as LagrangeFirstKind
from jaxmech.laws.maggi import Maggi as Maggi
from jaxmech.laws.nonideal import solve_law as solve_law
from jaxmech.laws.udwadia_kalaba import UdwadiaKalaba as UdwadiaKalaba
from jaxmech.linalg import LDL as LDL
from jaxmech.linalg import QR as QR
from jaxmech.linalg import SVD as SVD
from jaxmech.system import EquationsOfMotion as EquationsOfMotion

__all__ = [
    "LDL",
    "QR",
    "SVD",
    "Contravariant",
    "CoordinatePartition",
    "EquationsOfMotion",
    "GaussPrinciple",
    "LagrangeFirstKind",
    "Maggi",
    "Motion",
    "MultiplierFamily",
    "Observation",
    "UdwadiaKalaba",
    "christoffel_symbols",
    "gauss_function",
    "metric_tensor",
    "multiplier_family",
    "null_projector",
]
