"""`from_lagrange`: the Lagrangian, the loads and the constraints of sympy's `LagrangesMethod`.

Expressions become JAX functions by `lambdify`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.system import Holonomic, Nonholonomic, System


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
    if not isinstance(method, _mechanics().LagrangesMethod):
        raise TypeError(f"Argument `method` must be a LagrangesMethod, but is {method!r}.")
    names = _Names(method.q)
    private = vars(method)  # sympy has no public name for what a method is made of
    positions = list(private["_hol_coneqs"])
    velocities = list(method.coneqs)[len(positions) :]
    return System(
        names.function(private["_L"][0]),
        [
            *(
                Holonomic(names.function(equation, of_positions=True), f"holonomic{k}")
                for k, equation in enumerate(positions, start=1)
            ),
            *(
                Nonholonomic(names.function(equation), f"nonholonomic{k}")
                for k, equation in enumerate(velocities, start=1)
            ),
        ],
        _generalized(method, names) if method.forcelist else None,
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


class _Names:
    """The symbols of coordinates and of their rates, for `lambdify`."""

    def __init__(self, q: Any) -> None:
        import sympy

        self.t = _mechanics().dynamicsymbols._t  # noqa: SLF001  (the time has no public name)
        self.q = list(q)
        self.rates = [x.diff(self.t) for x in q]
        self.symbols = [[sympy.Dummy() for _ in self.q] for _ in range(2)]

    @property
    def coordinates(self) -> tuple[str, ...]:
        return tuple(str(x.func) for x in self.q)

    def function(self, expression: Any, *, of_positions: bool = False) -> Callable[..., Array]:
        """A function of (q, v, t, params), or of (q, t, params), from an expression."""
        import sympy

        matrix = sympy.Matrix(expression) if isinstance(expression, list) else expression
        plain = matrix.xreplace(dict(zip(self.rates, self.symbols[1], strict=True)))
        plain = plain.xreplace(dict(zip(self.q, self.symbols[0], strict=True)))
        for derivative in plain.atoms(sympy.Derivative):
            raise ValueError(
                f"Expressions must not contain {derivative}, only first derivatives of the "
                f"coordinates {', '.join(self.coordinates)}; substitute it."
            )
        inputs = plain.atoms(sympy.core.function.AppliedUndef)
        state_symbols = {*self.symbols[0], *self.symbols[1], self.t}
        symbols = sorted([*inputs, *(plain.free_symbols - state_symbols)], key=_name_of)
        arguments = [*self.symbols, self.t, symbols]
        fn = sympy.lambdify(arguments, plain, modules="jax", cse=True)
        flat = isinstance(expression, list)
        return _Expression(fn, tuple(map(_name_of, symbols)), flat, of_positions)


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
        q = 1.0 * jnp.asarray(q)
        v, (t, params) = (q, state) if self.of_positions else (state[0], state[1:])
        parameters = [params[name] for name in self.names]
        value = jnp.asarray(self.fn(list(q), list(jnp.asarray(v)), t, parameters), q.dtype)
        return value.reshape(-1) if self.is_flat else value
