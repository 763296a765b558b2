"""The three kinds of constraints, and their rows of A a = b.

    Holonomic      phi(q, t, p) = 0          a closed loop, a rod, a prescribed position
    Nonholonomic   psi(q, v, t, p) = 0       rolling, a knife edge, a prescribed speed
    Acceleration   chi(q, v, a, t, p) = 0    a servo or program constraint, affine in a

q are coordinates, v velocities, a accelerations, t time, p parameters. Differentiated until linear
in a, each becomes (Udwadia and Kalaba 1992; for phi, Kalaba et al. 1995, equation (24))

    A = dphi/dq,   b = -(d2phi/dt2 along the motion, without A a)
    A = dpsi/dv,   b = -(dpsi/dq v + dpsi/dt)
    A = dchi/da,   b = -chi at a = 0

In a system with quasi-velocities u (`quasi_velocities`), the functions take the rates of
the coordinates, but v, a and the columns of A are those of u: A = dphi/dq T, dpsi/dv T, dchi/da T.
"""

import abc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import jacobian
from jaxmech.system.quasi_velocities import Rates
from jaxmech.utils.checks import naming_missing, require_distinct, require_function
from jaxmech.utils.jit_cache import traced_once
from jaxmech.utils.probing import concrete, generic
from jaxmech.utils.traces import first_equal

Rows = tuple[Array, Array]


def rate(fn: Callable[[Array, Array], Array], q: Array, v: Array, t: Array) -> Array:
    """The time derivative of fn(q, t) along the motion: (dfn/dq) v + dfn/dt."""
    return jax.jvp(fn, (q, t), (v, jnp.ones_like(t)))[1]


@dataclass(frozen=True, repr=False)
class AbstractConstraint(abc.ABC):
    """A named function whose value must be zero; subclasses differ in its arguments."""

    fn: Callable[..., Array]
    name: str = ""
    # Those of the system that the constraint is part of.
    kinematics: Rates = field(default=Rates(), init=False)

    takes = "q, v, t, params"  # the arguments of fn
    pairs = False  # whether it may return a (k, 2) array

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Argument `name` must be a string, but is {self.name!r}.")
        require_function("fn", self.fn, self.takes)
        object.__setattr__(self, "fn", first_equal(self.fn))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @traced_once
    def value(self, *state: Any) -> Array:
        """The value of `fn` as a (k,) array; a scalar has k = 1."""
        with naming_missing(f"constraint {self.name!r}", state[-1]):
            value = self.fn(*self.in_speeds(*state))
        if value is None:
            raise ValueError(
                f"Constraint {self.name!r} returned None; add a `return` to its function."
            )
        value = jnp.asarray(value).astype(state[0].dtype)  # also of a constant in another precision
        if value.ndim > 1 and not (self.pairs and value.shape[1:] == (2,)):
            raise ValueError(
                f"Constraint {self.name!r} must return a scalar or a (k,) array, but returned "
                f"shape {value.shape}; stack its components into one array."
            )
        return value.ravel() if value.ndim > 1 else jnp.atleast_1d(value)

    def with_kinematics(self, kinematics: Rates) -> "AbstractConstraint":
        """The same constraint in a system with these velocities."""
        if self.kinematics == kinematics:
            return self
        copy = replace(self)
        object.__setattr__(copy, "kinematics", kinematics)
        return copy

    def in_speeds(self, *state: Any) -> tuple[Any, ...]:
        """The arguments of `fn`, with the rates of the coordinates in place of the velocities."""
        return state

    def speeds(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The rates of the coordinates (n,)."""
        return self.kinematics.speeds(q, v, t, params)

    @abc.abstractmethod
    def rows(self, q: Array, v: Array, t: Array, params: Any) -> Rows:
        """The rows A (k, n) and b (k,) of A a = b at a state."""

    @abc.abstractmethod
    def residual(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        """The residual (k,), at the level of the constraint."""


class Holonomic(AbstractConstraint):
    """A constraint on the positions: `fn(q, t, params) = 0`.

    Args:
        fn: function that returns a scalar or a (k,) array, zero when the constraint holds.
        name: name in messages, reactions and reports; by default that of `fn`.

    Raises:
        TypeError: if `fn` is not a function or `name` not a string.

    Example:
        >>> Holonomic(lambda q, t, p: q @ q - p["l"] ** 2, name="rod")
        Holonomic('rod')
    """

    takes = "q, t, params"

    def residual(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        return self.value(q, t, params)

    def speed(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The derivative dphi/dt along the motion."""
        return rate(lambda q, t: self.value(q, t, params), q, self.speeds(q, v, t, params), t)

    def rows(self, q: Array, v: Array, t: Array, params: Any) -> Rows:
        """The rows A = dphi/dq and b = -(second time derivative without A a)."""
        speeds = self.speeds(q, v, t, params)
        b = -rate(lambda q, t: self.speed(q, v, t, params), q, speeds, t)
        return self.velocity_jacobian(q, t, params), b

    @traced_once
    def jacobian(self, q: Array, t: Array, params: Any) -> Array:
        """The Jacobian dphi/dq, (k, n)."""
        return jacobian(lambda q: self.value(q, t, params), q)

    def velocity_jacobian(self, q: Array, t: Array, params: Any) -> Array:
        """The Jacobian of dphi/dt with respect to v: dphi/dq, unless there are quasi-velocities."""
        return self.kinematics.rows(self.jacobian(q, t, params), q, t, params)


class Nonholonomic(AbstractConstraint):
    """A constraint on the velocities: `fn(q, v, t, params) = 0`, any smooth dependence on v.

    Args:
        fn: function that returns a scalar or a (k,) array, zero when the constraint holds.
        name: name in messages, reactions and reports; by default that of `fn`.

    Raises:
        TypeError: if `fn` is not a function or `name` not a string.

    Example:
        >>> import jax.numpy as jnp
        >>> Nonholonomic(lambda q, v, t, p: v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2]), "edge")
        Nonholonomic('edge')
    """

    def residual(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        return self.value(q, v, t, params)

    def in_speeds(self, *state: Any) -> tuple[Any, ...]:
        q, _, t, params = state
        return q, self.speeds(*state), t, params

    def rows(self, q: Array, v: Array, t: Array, params: Any) -> Rows:
        """The rows A = dpsi/dv and b = -(dpsi/dq v + dpsi/dt)."""
        speeds = self.speeds(q, v, t, params)
        b = -rate(lambda q, t: self.value(q, v, t, params), q, speeds, t)
        return self.jacobian(q, v, t, params), b

    @traced_once
    def jacobian(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The Jacobian dpsi/dv, (k, n)."""
        return jacobian(lambda v: self.value(q, v, t, params), v)


class Acceleration(AbstractConstraint):
    """A constraint on the accelerations: `fn(q, v, a, t, params) = 0`, affine in a.

    Whether it is affine is checked where the constraint is used, at fixed generic arguments.

    Args:
        fn: function that returns a scalar or a (k,) array, zero when the constraint holds.
        name: name in messages, reactions and reports; by default that of `fn`.

    Raises:
        TypeError: if `fn` is not a function or `name` not a string.

    Example:
        >>> Acceleration(lambda q, v, a, t, p: a[0] - p["lift"], name="lift")
        Acceleration('lift')
    """

    takes = "q, v, a, t, params"

    def residual(self, q: Array, v: Array, a: Array, t: Array, params: Any) -> Array:
        return self.value(q, v, a, t, params)

    def in_speeds(self, *state: Any) -> tuple[Any, ...]:
        q, v, a, t, params = state
        accelerations = self.kinematics.speed_rates(q, v, a, t, params)
        return q, self.speeds(q, v, t, params), accelerations, t, params

    def rows(self, q: Array, v: Array, t: Array, params: Any) -> Rows:
        """The rows A = dchi/da and b = -chi at a = 0."""
        self._require_affine(q, v, t, params)
        zeros = jnp.zeros_like(v)
        A = jax.jacfwd(lambda a: self.value(q, v, a, t, params))(zeros)
        return A, -self.value(q, v, zeros, t, params)

    def _require_affine(self, *state: Any) -> None:
        def slopes(points: Array, q: Array, v: Array, t: Array, params: Any) -> Array:
            def slope(a: Array) -> Array:
                return jax.jacfwd(lambda a: self.value(q, v, a, t, params))(a)

            return jax.vmap(slope)(points * scales[:, None])

        # Over several magnitudes, so that abs, clip and the like are detected.
        scales = np.array([-1e3, -1.0, -1e-3, 1e-3, 1.0, 1e3])
        q, v, t, params = state
        points = jnp.zeros((scales.size, *v.shape), q.dtype)
        slopes_at_points = concrete(slopes, *generic((points, q, v, t, params), seed=1))
        if slopes_at_points is None:
            return
        least = 1e-6 * float(np.nanmax(np.abs(slopes_at_points), initial=0.0).clip(max=1.0))
        if not np.allclose(
            slopes_at_points, slopes_at_points[0], rtol=1e-4, atol=least, equal_nan=True
        ):
            raise ValueError(
                f"Constraint {self.name!r} must be affine in the acceleration a, but its "
                f"derivative with respect to a depends on a; solve it for a first."
            )


def named_constraints(constraints: Sequence[AbstractConstraint]) -> tuple[AbstractConstraint, ...]:
    """The constraints as a tuple, all with different names, or an error."""
    sequence: tuple[Any, ...] = (
        tuple(constraints) if isinstance(constraints, Iterable) else (constraints,)
    )
    for constraint in sequence:
        if not isinstance(constraint, AbstractConstraint):
            raise TypeError(
                "Argument `constraints` must hold Holonomic, Nonholonomic or Acceleration objects, "
                f"but holds {constraint!r}; wrap the function, for example Holonomic(fn, name=...)."
            )
    with_names = tuple(
        c if c.name else replace(c, name=function_name(c.fn, f"constraint{number}"))
        for number, c in enumerate(sequence, start=1)
    )
    require_distinct("constraints", tuple(c.name for c in with_names))
    return with_names


def checked_invariants(
    invariants: Sequence[AbstractConstraint], constraints: Sequence[AbstractConstraint],
    has_velocities: bool,
) -> tuple[AbstractConstraint, ...]:  # fmt: skip
    """The invariants of a system with these constraints as a tuple, or an error."""
    invariants = named_constraints(invariants) if invariants else ()
    for invariant in invariants:
        if not isinstance(invariant, Holonomic):
            raise TypeError(
                "Argument `invariants` must hold Holonomic objects, but holds "
                f"{invariant!r}; they are equations on the positions alone."
            )
    if invariants and not has_velocities:
        raise ValueError(
            "Argument `invariants` must come with `velocities` and `kinematics`, which are "
            "missing; among plain velocities such an equation is one of the `constraints`."
        )
    require_distinct("invariants", tuple(c.name for c in (*constraints, *invariants)))
    return invariants


def function_name(fn: Callable[..., Array], default: str) -> str:
    """The name of a function, or the default for lambdas and partial functions."""
    name = getattr(fn, "__name__", "<lambda>")
    return default if name == "<lambda>" else name
