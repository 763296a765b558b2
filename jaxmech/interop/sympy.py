"""Systems from models of `sympy.physics.mechanics`.

`from_lagrange` takes the Lagrangian, the loads and the constraints of a `LagrangesMethod`.
`from_kane` takes the equations M u' = F of a `KanesMethod` without its constraints. With speeds
u = W(q, t) q' + w(q, t) they become, by the principle of virtual power,

    W^T M W q'' = W^T (F - M (W' q' + w')),

and the constraints are those of the system. Expressions become JAX functions by `lambdify`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.system import AbstractConstraint, Holonomic, Nonholonomic, System, generalized_force


def _mechanics() -> Any:
    """`sympy.physics.mechanics`; sympy is an extra."""
    try:
        from sympy.physics import mechanics
    except ImportError as error:
        raise ImportError(
            "Models of sympy need sympy, which is not installed: pip install sympy."
        ) from error
    return mechanics


def from_lagrange(method: Any) -> System:
    """The system of a `LagrangesMethod`, whether or not its equations have been formed.

    The coordinates have the names of the dynamic symbols. Parameters are named like the other
    symbols: `params["m"]`; so are dynamic symbols that are not coordinates, such as inputs. The
    constraints are `holonomic1` and so on, and `nonholonomic1` and so on.

    Args:
        method: the `LagrangesMethod`.

    Raises:
        ImportError: if sympy is not installed.
        TypeError: if the argument is not a `LagrangesMethod`.
        ValueError: if an expression contains a derivative other than the first of a coordinate.
    """
    _require_kind(method, _mechanics().LagrangesMethod)
    names = _Names(method.q)
    private = vars(method)  # sympy has no public name for what a method is made of
    loads = _generalized(method, names) if method.forcelist else None
    return System(
        names.function(private["_L"][0]),
        [
            *_holonomic(names, private["_hol_coneqs"]),
            *_nonholonomic(names, list(method.coneqs)[len(private["_hol_coneqs"]) :]),
        ],
        loads,
        coordinates=names.coordinates,
    )


def _generalized(method: Any, names: "_Names") -> Callable[..., Array]:
    frame = method.inertial
    total = [0] * len(method.q)
    for target, load in method.forcelist:
        is_point = isinstance(target, _mechanics().Point)
        velocity = target.vel(frame) if is_point else target.ang_vel_in(frame)
        for k, rate in enumerate(names.rates):
            total[k] += velocity.diff(rate, frame, var_in_dcm=False).dot(load)
    return names.function(total)


def from_kane(method: Any) -> System:
    """The system of a `KanesMethod` whose equations have been formed.

    The coordinates are those of the method, the velocities their derivatives, whatever its speeds
    are: a state is (q, q'). Configuration constraints are `holonomic1` and so on, velocity
    constraints `nonholonomic1` and so on; those which follow from the former are redundant rows.
    All forces are forces of the system, so that its energy is the kinetic one.

    Args:
        method: the `KanesMethod`, after `kanes_equations`.

    Raises:
        ImportError: if sympy is not installed.
        TypeError: if the argument is not a `KanesMethod`.
        ValueError: if the equations have not been formed yet, the numbers of speeds and coordinates
            differ, there are auxiliary speeds, or an expression contains an unknown derivative.
    """
    mechanics = _mechanics()
    _require_kind(method, mechanics.KanesMethod)
    private = vars(method)
    q, u = list(method.q), list(method.u)
    if private["_fr"] is None:
        raise ValueError("Argument `method` must have equations; call `kanes_equations` before.")
    if len(u) != len(q) or len(private["_uaux"]):
        raise ValueError(
            f"Argument `method` must have as many speeds as coordinates and no auxiliary ones, but "
            f"has {len(q)} coordinates, {len(u)} speeds and {len(private['_uaux'])} auxiliary "
            "ones; define the speeds by invertible equations."
        )
    matrices = private["_k_ku_implicit"], private["_k_kqdot_implicit"], private["_f_k_implicit"]
    names = _Names(method.q)
    speeds = -matrices[0].LUsolve(matrices[1] * method.q.diff() + matrices[2])
    rates = method.kindiffdict()
    free = mechanics.KanesMethod(private["_inertial"], q, u, kd_eqs=[d - rates[d] for d in rates])
    free.kanes_equations(method.bodies, method.loads or None)
    with_u = _Names(method.q, u)
    equations = _Kane(
        names.function(list(speeds)),
        with_u.function(free.mass_matrix),
        with_u.function(list(free.forcing)),
    )
    velocity = private["_k_nh"] * method.u + private["_f_nh"] if private["_k_nh"] else []
    velocity = [x.xreplace(dict(zip(u, speeds, strict=True))) for x in velocity]
    return System(
        equations.kinetic,
        [*_holonomic(names, private["_f_h"]), *_nonholonomic(names, velocity)],
        equations.force,
        coordinates=names.coordinates,
    )


@dataclass(frozen=True, eq=False)
class _Kane:
    """Kane's equations M u' = F as functions, all of (q, v or u, t, params)."""

    speeds: Callable[..., Array]
    mass: Callable[..., Array]
    forcing: Callable[..., Array]

    def kinetic(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The part of the kinetic energy that is quadratic in the speeds."""
        u = self.speeds(q, v, t, params)
        return 0.5 * u @ self.mass(q, u, t, params) @ u

    def force(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The generalized force with which the equations are Kane's, (n,)."""
        u = self.speeds(q, v, t, params)
        W = jax.jacfwd(lambda v: self.speeds(q, v, t, params))(v)
        along = (v, jnp.ones_like(t))
        _, drift = jax.jvp(lambda q, t: self.speeds(q, v, t, params), (q, t), along)
        M = self.mass(q, u, t, params)
        slopes = jax.grad(lambda q, v, t: self.kinetic(q, v, t, params), argnums=(0, 1))
        inertial = generalized_force(slopes, q, v, t)
        return W.T @ (self.forcing(q, u, t, params) - M @ drift) - inertial


class _Names:
    """The symbols of coordinates and of their rates (or of speeds), for `lambdify`."""

    def __init__(self, q: Any, u: Sequence[Any] = ()) -> None:
        import sympy

        self.t = _mechanics().dynamicsymbols._t  # noqa: SLF001  (the time has no public name)
        self.q = list(q)
        self.rates = [x.diff(self.t) for x in q]
        self.second = list(u) or self.rates
        self.symbols = [[sympy.Dummy() for _ in self.q] for _ in range(2)]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""
        return tuple(str(x.func) for x in self.q)

    def function(self, expression: Any, *, of_positions: bool = False) -> Callable[..., Array]:
        """A function of (q, v, t, params), or of (q, t, params), from an expression."""
        import sympy

        matrix = sympy.Matrix(expression) if isinstance(expression, list) else expression
        plain = matrix.xreplace(dict(zip(self.second, self.symbols[1], strict=True)))
        plain = plain.xreplace(dict(zip(self.q, self.symbols[0], strict=True)))
        for derivative in plain.atoms(sympy.Derivative):
            raise ValueError(
                f"Expressions must not contain {derivative}, only first derivatives of the "
                f"coordinates {', '.join(self.coordinates)}; substitute it."
            )
        inputs = plain.atoms(sympy.core.function.AppliedUndef)
        state_symbols = {*self.symbols[0], *self.symbols[1], self.t}
        given = sorted([*inputs, *(plain.free_symbols - state_symbols)], key=_name_of)
        arguments = [*self.symbols, self.t, given]
        fn = sympy.lambdify(arguments, plain, modules="jax", cse=True)
        flat = isinstance(expression, list)
        return _Expression(fn, tuple(map(_name_of, given)), flat, of_positions)


def _name_of(symbol: Any) -> str:
    return str(symbol.func) if symbol.args else str(symbol)


@dataclass(frozen=True, eq=False)
class _Expression:
    """A function made by `lambdify`, of (q, v, t, params) or of (q, t, params)."""

    fn: Callable[..., Any]
    names: tuple[str, ...]
    is_flat: bool  # a column as a vector
    of_positions: bool

    def __call__(self, q: Any, *state: Any) -> Array:
        """The value, a scalar, a vector or a matrix."""
        q = 1.0 * jnp.asarray(q)
        v, (t, params) = (q, state) if self.of_positions else (state[0], state[1:])
        parameters = [params[name] for name in self.names]
        value = jnp.asarray(self.fn(list(q), list(jnp.asarray(v)), t, parameters), q.dtype)
        return value.reshape(-1) if self.is_flat else value


def _holonomic(names: _Names, equations: Any) -> list[AbstractConstraint]:
    return [
        Holonomic(names.function(equation, of_positions=True), name=f"holonomic{k}")
        for k, equation in enumerate(equations, start=1)
    ]


def _nonholonomic(names: _Names, equations: Any) -> list[AbstractConstraint]:
    return [
        Nonholonomic(names.function(equation), name=f"nonholonomic{k}")
        for k, equation in enumerate(equations, start=1)
    ]


def _require_kind(method: Any, kind: Any) -> None:
    if not isinstance(method, kind):
        raise TypeError(f"Argument `method` must be a {kind.__name__}, but is {method!r}.")
