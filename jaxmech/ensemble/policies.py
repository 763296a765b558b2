"""From the words of a study to the policies of `simulate`."""

from jaxmech.ensemble.study import DriftControl, Formulation, Method, Project, Stabilize
from jaxmech.formulations import UdwadiaKalaba
from jaxmech.integrate import RK4, AbstractMethod, DormandPrince5, Midpoint
from jaxmech.linalg import LDL, QR, SVD, AbstractSolver
from jaxmech.stabilization import Baumgarte, Projection

_METHODS = {"rk4": RK4, "midpoint": Midpoint, "dormand-prince5": DormandPrince5}
_SOLVERS: dict[str, AbstractSolver] = {"ldl": LDL(), "qr": QR(), "svd": SVD()}


def method_of(method: Method) -> AbstractMethod:
    """The Runge-Kutta method."""
    return _METHODS[method.name](substeps=method.substeps)


def law_of(law: Formulation) -> UdwadiaKalaba:
    """The law of motion."""
    return UdwadiaKalaba(solver=_SOLVERS[law.solver], singular_mass=law.singular_mass)


def drift_control_of(control: DriftControl) -> Projection | Baumgarte | None:
    """What holds the motion on the constraints, None if nothing does."""
    match control:
        case Project(iterations=iterations, solver=solver):
            return Projection(iterations=iterations, solver=_SOLVERS[solver])
        case Stabilize(alpha=alpha, beta=beta):
            return Baumgarte(alpha=alpha, beta=beta)
        case _:
            return None
