"""The Udwadia-Kalaba equation: constrained accelerations by a generalized inverse.

Among all accelerations with A qdd = b, nature takes the one closest to the free acceleration
a = M^-1 Q in the metric of M (Gauss 1829). Kalaba, Udwadia, Xu and Itiki 1995, equation (2):

    qdd = a + M^-1/2 (A M^-1/2)^+ (b - A a)

M^1/2 is never formed: with M = L L^T and C = A L^-T the same acceleration is

    qdd = a + L^-T C^+ (b - A a) = a + M^-1 A^T lambda.

It is defined for redundant constraints too; then lambda is not unique, A^T lambda is.
"""

from dataclasses import dataclass, replace

from jaxtyping import Array, Bool

from jaxmech.laws.base import AbstractFormulation, Law, regular
from jaxmech.linalg import LDL, AbstractSolver, metric
from jaxmech.system import EquationsOfMotion, SingularMass
from jaxmech.utils.checks import require_kind
from jaxmech.utils.text import setting


@dataclass(frozen=True)
class UdwadiaKalaba(AbstractFormulation):
    """The generalized-inverse form of the equations of motion, the default law.

    Args:
        solver: the solver for C^+: `LDL()` (fast), `QR()` (near singular poses), `SVD()`
            (reference).
        singular_mass: whether M lacks full rank; detected by default. If so, M is made definite
            with the constraints, which does not change the motion if [M; A] has full column rank.

    Raises:
        TypeError: if `solver` is not a solver.
    """

    solver: AbstractSolver = setting(
        LDL(), "ldl is fastest, qr better near singular poses, svd the reference"
    )
    singular_mass: bool | None = setting(
        None, "whether the mass matrix is singular; determined from the system by default"
    )

    def __post_init__(self) -> None:
        require_kind("solver", self.solver, AbstractSolver, "LDL()")

    def takes_as_singular(self, detected: SingularMass) -> SingularMass:
        """`singular_mass` if set, combined with the rows found by the detection."""
        return detected if self.singular_mass is None else self.singular_mass and (detected or True)

    def solve(self, eom: EquationsOfMotion, *, independent: Bool[Array, " m"] | None = None) -> Law:
        M, Q = self._regular(eom)
        mass = metric(M, eom.A, self.solver, independent)
        free, qdd, multipliers = mass.solve(Q, eom.b)
        return Law(qdd, free, multipliers, mass.rank, mass.definite, independent=mass.independent)

    def _regular(self, eom: EquationsOfMotion) -> tuple[Array, Array]:
        return regular(replace(eom, singular_mass=self.takes_as_singular(eom.singular_mass)))
