"""`to_diffrax`: a system for `diffrax.diffeqsolve`, with a solver that stays on the constraints."""

import importlib.util
from typing import Any, NamedTuple

from jaxmech.integrate import Scheme
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.state import Projection
from jaxmech.system import Subject, require_no_gaps, system_of
from jaxmech.utils.checks import require_kind


class Diffrax(NamedTuple):
    """The first two arguments of `diffrax.diffeqsolve`.

    The result of `to_diffrax`.

    Attributes:
        term: a `diffrax.ODETerm` with y = (q, v) and the parameters as `args`.
        solver: a solver of diffrax that ends every step on the constraints.
    """

    term: Any
    solver: Any


def to_diffrax(
    system: Subject,
    solver: Any = None,
    *,
    projection: Projection | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> Diffrax:
    """The equations of motion for diffrax, for its step size controllers, events and adjoints.

    The state is y = (q, v), and `args` are the parameters. Each step of the solver ends with the
    projection, as do values between steps (`SaveAt(ts=...)` and `dense=True`). Solvers that reuse
    the last stage of a step for the next one compute it again, at the projected state. Gradients
    by `RecursiveCheckpointAdjoint`, the default of diffrax, by `DirectAdjoint` and by `ForwardMode`
    include the projection; `BacksolveAdjoint` would not, and is refused. A step whose projection
    fails is repeated shorter by an adaptive controller; with `ConstantStepSize` its state is NaN.
    diffrax has no native code for batches: under `vmap` all trajectories take the same number of
    loop iterations, and `simulate` is faster.

    Args:
        system: the system, with n coordinates.
        solver: a Runge-Kutta solver of diffrax, by default `diffrax.Tsit5()`.
        projection: onto the constraints; None for the solver as it is.
        formulation: law of motion.

    Returns:
        The term and the solver.

    Raises:
        ImportError: if diffrax is not installed.
        TypeError: if `solver` is not a Runge-Kutta solver of diffrax, or a policy has the wrong
            kind.
        ValueError: by `diffeqsolve`, if y is not (q, v); if the initial state violates the
            constraints, a RuntimeError of equinox.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> import pytest; diffrax = pytest.importorskip("diffrax")
        >>> model = jm.models.pendulum()
        >>> term, solver = to_diffrax(model.system, diffrax.Dopri5())
        >>> sol = diffrax.diffeqsolve(
        ...     term, solver, 0.0, 1.0, 0.01, model.initial(), args=model.params,
        ...     stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
        ... )
        >>> q, v = sol.ys
        >>> print(abs(q[0] @ q[0] - 1.0) < 1e-14)
        True
    """
    if importlib.util.find_spec("diffrax") is None:
        raise ImportError(
            "`to_diffrax` needs diffrax, which is not installed: pip install diffrax."
        )
    import diffrax

    from jaxmech.interop.diffrax.solver import ProjectedSolver, Rate

    system = system_of(system)
    require_no_gaps(system)
    require_kind("formulation", formulation, AbstractFormulation, "UdwadiaKalaba()")
    solver = diffrax.Tsit5() if solver is None else solver
    require_kind("solver", solver, diffrax.AbstractSolver, "diffrax.Tsit5()")
    _require_one_step(solver, diffrax)
    term = diffrax.ODETerm(Rate(Scheme.of(system, projection=None, formulation=formulation)))
    if projection is None:
        return Diffrax(term, solver)
    require_kind("projection", projection, Projection, "Projection() or None")
    scheme = Scheme.of(system, projection=projection, formulation=formulation)
    return Diffrax(term, ProjectedSolver(solver, scheme))


def _require_one_step(solver: Any, diffrax: Any) -> None:
    if not isinstance(solver, diffrax.AbstractRungeKutta | diffrax.Euler):
        name = type(solver).__name__
        raise TypeError(
            "Argument `solver` must be a Runge-Kutta solver of diffrax, such as diffrax.Tsit5() "
            f"or diffrax.Kvaerno5(), but is {name}, which carries data from step to step "
            "that the projection would invalidate."
        )
