"""Laws of motion: from M, Q, A and b to accelerations and multipliers, one law per file."""

from jaxmech.formulations.acceleration import Motion as Motion
from jaxmech.formulations.acceleration import acceleration as acceleration
from jaxmech.formulations.acceleration import null_projector as null_projector
from jaxmech.formulations.base import AbstractFormulation as AbstractFormulation
from jaxmech.formulations.base import Law as Law
from jaxmech.formulations.udwadia_kalaba import UdwadiaKalaba as UdwadiaKalaba
