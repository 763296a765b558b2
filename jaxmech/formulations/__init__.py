"""Laws of motion, one per file: from M, Q, A and b to accelerations and multipliers.

Read `base`, the interface, then `udwadia_kalaba`, the default, with `regular` for a singular M. The
others are `lagrange_first_kind`, `gauss`, `maggi`, `coordinate_partition` and `contravariant`,
which uses `christoffel`. `nonideal` adds friction to any of them. `acceleration` evaluates a law at
a state and `observation` along a run, `multiplier_family` computes all multipliers, and `compare`
compares the laws and their numbers of operations.
"""

from jaxmech.formulations.acceleration import Motion as Motion
from jaxmech.formulations.acceleration import acceleration as acceleration
from jaxmech.formulations.acceleration import null_projector as null_projector
from jaxmech.formulations.base import AbstractFormulation as AbstractFormulation
from jaxmech.formulations.base import Law as Law
from jaxmech.formulations.base import Partition as Partition
from jaxmech.formulations.christoffel import Christoffel as Christoffel
from jaxmech.formulations.christoffel import christoffel_symbols as christoffel_symbols
from jaxmech.formulations.christoffel import metric_tensor as metric_tensor
from jaxmech.formulations.compare import FORMULATIONS as FORMULATIONS
from jaxmech.formulations.compare import Comparison as Comparison
from jaxmech.formulations.compare import compare_formulations as compare_formulations
from jaxmech.formulations.compare import operations as operations
from jaxmech.formulations.contravariant import Contravariant as Contravariant
from jaxmech.formulations.contravariant import eliminated as eliminated
from jaxmech.formulations.coordinate_partition import CoordinatePartition as CoordinatePartition
from jaxmech.formulations.gauss import GaussPrinciple as GaussPrinciple
from jaxmech.formulations.gauss import gauss_function as gauss_function
from jaxmech.formulations.lagrange_first_kind import LagrangeFirstKind as LagrangeFirstKind
from jaxmech.formulations.maggi import Maggi as Maggi
from jaxmech.formulations.multiplier_family import MultiplierFamily as MultiplierFamily
from jaxmech.formulations.multiplier_family import multiplier_family as multiplier_family
from jaxmech.formulations.nonideal import solve_law as solve_law
from jaxmech.formulations.observation import Observation as Observation
from jaxmech.formulations.observation import observed_at as observed_at
from jaxmech.formulations.regular import regular as regular
from jaxmech.formulations.udwadia_kalaba import UdwadiaKalaba as UdwadiaKalaba
