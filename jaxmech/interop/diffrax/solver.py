"""A diffrax solver that ends every step on the constraints, and interpolates along them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate import Scheme
from jaxmech.system import Params, System, on_constraints

State = tuple[Array, Array]


def project(scheme: Scheme, t: Any, y: State, params: Params) -> State:
    """Move to the nearest state on the constraints, NaN where it could not be reached."""
    q, v, t, params = scheme.system.arguments(*y, t, params)
    scheme = scheme.at(q, v, t, params)
    q, v, reached = scheme.stabilization.after_step(scheme.system, q, v, t, params)
    q, v = (jnp.where(reached, x, jnp.nan) for x in (q, v))
    return q, v


@dataclass(frozen=True)
class Rate:
    """The rate of a state (q, v), NaN where M is singular; `args` are the parameters."""

    scheme: Scheme

    def __call__(self, t: Any, y: Any, args: Params) -> State:
        """The time derivative of y."""
        system = self.scheme.system
        _require_state(system, y)
        q, v = y
        q, v, t, params = system.arguments(q, v, t, args)
        _, law = self.scheme.at(q, v, t, params).law(q, v, t, params)
        speeds = system.dynamics.speeds(q, v, t, params)
        return speeds, jnp.where(law.definite, law.qdd, jnp.nan)


class ProjectedInterpolation(diffrax.AbstractLocalInterpolation):  # type: ignore[misc]
    """The interpolation of a solver, projected at each evaluation."""

    t0: Any
    t1: Any
    inner: diffrax.AbstractLocalInterpolation
    params: Params
    scheme: Scheme = eqx.field(static=True)

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        """The state at t0, or its change from t0 to t1."""
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        return project(self.scheme, t0, self.inner.evaluate(t0, left=left), self.params)


@dataclass(frozen=True)
class _Interpolations:
    """Makes a `ProjectedInterpolation` of the stored data of a step."""

    inner: Callable[..., Any]
    scheme: Scheme

    def __call__(self, *, t0: Any, t1: Any, params: Params, **info: Any) -> Any:
        inner = self.inner(t0=t0, t1=t1, **info)
        return ProjectedInterpolation(t0, t1, inner, params, self.scheme)


class ProjectedSolver(diffrax.AbstractWrappedSolver):  # type: ignore[misc]
    """A Runge-Kutta solver of diffrax whose steps end on the constraints."""

    solver: diffrax.AbstractSolver
    scheme: Scheme = eqx.field(static=True)

    @property
    def term_structure(self) -> Any:
        """The structure of a single `diffrax.ODETerm`."""
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:
        """Interpolation along the constraints."""
        return _Interpolations(self.solver.interpolation_cls, self.scheme)

    @property
    def root_finder(self) -> Any:
        """The root finder of an implicit solver."""
        return self.solver.root_finder

    @property
    def root_find_max_steps(self) -> Any:
        """The largest number of steps of its root finder."""
        return self.solver.root_find_max_steps

    def order(self, terms: Any) -> Any:
        """The order of the solver."""
        return self.solver.order(terms)

    def error_order(self, terms: Any) -> Any:
        """The error order of the solver."""
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        """The state of the solver, and whether the initial state is consistent."""
        system = self.scheme.system
        _require_state(system, y0)
        q, v = y0
        consistent = on_constraints(system, *system.arguments(q, v, t0, args))
        consistent = eqx.error_if(consistent, ~consistent, _INCONSISTENT)
        return self.solver.init(terms, t0, t1, y0, args), consistent

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any
    ) -> Any:
        """A step of the solver, and the projection of its end."""
        inner, consistent = solver_state
        # The projection moved y0: a stage kept from the end of the last step (FSAL) is not at y0.
        y1, error, info, inner, result = self.solver.step(
            terms, t0, t1, y0, args, inner, made_jump=True
        )
        q, v = project(self.scheme, t1, y1, args)
        # `error_if` may be off (EQX_ON_ERROR); an inconsistent start must not look like a motion.
        y1 = jnp.where(consistent, q, jnp.nan), v
        if error is not None:  # an adaptive controller tries again with a shorter step
            failed = jnp.isnan(q).any()
            error = jax.tree.map(lambda x: jnp.where(failed, jnp.inf, x), error)
        if "y1" in info:
            info = {**info, "y1": y1}
        return y1, error, {**info, "params": args}, (inner, consistent), result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """Evaluate the rate of a state."""
        return self.solver.func(terms, t0, y0, args)


def _require_state(system: System, y: Any) -> None:
    needed = (system.n,), (system.n_velocities,)
    shapes = [jnp.shape(x) for x in y] if isinstance(y, tuple) and len(y) == 2 else None
    if shapes != list(needed):
        raise ValueError(
            f"Argument `y0` must be a tuple (q, v) of shapes {needed}, but has the shapes "
            f"{jax.tree.map(jnp.shape, y)}. `diffrax.BacksolveAdjoint` integrates a "
            "different state backwards and ignores the projection: use "
            "`diffrax.RecursiveCheckpointAdjoint()`, the default of diffrax."
        )


_INCONSISTENT = (
    "Argument `y0` must satisfy the constraints, but does not; pass it through `assemble` first."
)
