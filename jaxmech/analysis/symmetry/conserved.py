"""`conserved`: energy, momenta and other integrals of a system, found numerically.

Noether's theorem: a velocity field xi(q) and a shift of time s have the quantity

    J = dL/dv . xi - s (v . dL/dv - L).

It is conserved if its rate along the motion, dJ/dt = J_q v + J_v qdd + J_t with the accelerations
of the constrained system, vanishes at random states on the constraints. J is linear in (c, W, s)
of an affine field xi = c + W q, so all such integrals are a null space. A constraint or a force
that does work along xi is thus accounted for; a symmetry of L alone is not enough. States of first
order are functions of time here, with their rates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.analysis.states import checked_in_rates
from jaxmech.analysis.symmetry.symmetries import (
    Symmetries,
    generic_states,
    negligible,
    null_vectors,
    outside_span,
)
from jaxmech.laws import acceleration
from jaxmech.run import Solution
from jaxmech.system import Params, Subject, System, with_mass_rank, with_params, without_states
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_function, with_standard_promotion

Field = Callable[[Array, Array, Any], Array]


@dataclass(frozen=True)
class Quantity:
    """The momentum of a symmetry.

    Attributes:
        name: name of the quantity.
        field: its velocity field xi(q, t, params), shape (n,), and its shift of time s.
        is_conserved: whether it is conserved; false only for fields passed by the caller.
        rate: the largest rate found, relative to the rates of its parts.
    """

    name: str
    field: Callable[[Array, Array, Any], tuple[Array, Array]]
    is_conserved: bool
    rate: float


@dataclass(frozen=True, repr=False)
class Conserved:
    """The result of `conserved`, which prints itself.

    Attributes:
        system: the system.
        quantities: energy, momenta of cyclic coordinates, of other symmetries, of given fields.
        params: the parameters for which they were found.
    """

    system: System
    quantities: tuple[Quantity, ...]
    params: Params

    def values(self, q: Any, v: Any, t: Any = 0.0) -> dict[str, Float[Array, ""]]:
        """The quantities at a state, by name.

        Args:
            q: coordinates, shape (n,).
            v: velocities, shape (n,), or quasi-velocities.
            t: time [s].
        """
        q, v, t, params = self.system.arguments(q, v, t, self.params)
        state = q, self.system.dynamics.speeds(q, v, t, params), t, params
        return {x.name: _momentum(self.system, x.field, *state)[0] for x in self.quantities}

    def drift(self, solution: Solution) -> dict[str, float]:
        """The change of each quantity along a run, relative to its largest size there, by name.

        Args:
            solution: the solution of one trajectory.
        """
        along = jax.jit(jax.vmap(self.values))(solution.q, solution.v, solution.ts)
        drifts = {}
        for name, values in along.items():
            x = np.asarray(values)
            size = np.abs(x).max()
            drifts[name] = float(np.abs(x - x[0]).max() / (size if size > 0 else 1.0))
        return drifts

    def __repr__(self) -> str:
        lines = [f"Conserved: {sum(x.is_conserved for x in self.quantities)} quantities"]
        for x in self.quantities:
            verdict = "" if x.is_conserved else f" (not conserved: relative rate {x.rate:.2g})"
            lines.append(f"  {x.name}{verdict}")
        return "\n".join(lines)


@with_standard_promotion
def conserved(
    system: Subject,
    q: Any,
    v: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    fields: Mapping[str, Field] | None = None,
) -> Conserved:
    """Find the conserved quantities of a system: energy, cyclic momenta, momenta of symmetries.

    A host function of one state. Quantities of affine fields xi(q) = c + W q are all found: those
    of translations and turns, in Cartesian coordinates, angles and quaternions alike.

    Args:
        system: the system, with n coordinates.
        q: coordinates around which states are drawn, shape (n,).
        v: velocities around which states are drawn, shape (n,), or quasi-velocities.
        params: the parameters.
        t: time [s].
        fields: symmetries to try, by name, each xi(q, t, params) of shape (n,).

    Raises:
        TypeError: if `system` is not a `System`, or a field is not a function.
        ValueError: if a shape is wrong, a value is not finite, or no states on the constraints are
            found near `q` and `v`.

    Example:
        >>> def planet(q, v, t, p):
        ...     return v @ v / 2 + p["mu"] / jnp.sqrt(q @ q)
        >>> kepler = System(planet, coordinates=("x", "y"))
        >>> found = conserved(kepler, [1.0, 0.0], [0.0, 1.1], {"mu": 1.0})
        >>> found
        Conserved: 2 quantities
          energy
          momentum of x: y, y: -x
        >>> print(found.values([1.0, 0.0], [0.0, 1.1])["momentum of x: y, y: -x"])
        -1.1
    """
    subject, _ = with_params(system, params)
    system, (q, v, t, params) = checked_in_rates(system, q, v, t, params)
    for name, field in (fields or {}).items():
        require_function(f"fields[{name!r}]", field)
    n = system.n
    qs, vs, _, ts = generic_states(system, q, v, t, params, 3 * n + 12 + 2 * n * n)
    rates, sizes, values = (np.asarray(x) for x in _basis_rates(system, qs, vs, ts, params))
    good = np.isfinite(rates).all(1) & np.isfinite(values).all((1, 2))
    basis = _integrals(rates[good], sizes[good], values[good], system)
    symmetries = Symmetries.of(basis, system.coordinates, q.dtype)
    quantities = [_quantity(symmetries, k, name) for k, name in enumerate(_names(symmetries))]
    user_quantities = [
        _tested(system, name, field, qs, vs, ts, params) for name, field in (fields or {}).items()
    ]
    return Conserved(subject, (*quantities, *user_quantities), params)


def _momentum(
    system: System, field: Any, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array]:
    """J for the rates v of the coordinates, and the sum of the absolute values of its terms."""
    dynamics = system.dynamics
    L, p = jax.value_and_grad(lambda v: dynamics.lagrangian_value(q, v, t, params))(v)
    p = without_states(p, dynamics.n - dynamics.mechanical)
    xi, s = field(q, t, params)
    size = jnp.abs(p) @ jnp.abs(xi) + jnp.abs(s) * (jnp.abs(v) @ jnp.abs(p) + jnp.abs(L))
    return p @ xi - s * (v @ p - L), size


def _rate(
    system: System, field: Any, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    """dJ/dt along the motion, the size of its terms, and J relative to the size of its terms."""
    a = acceleration(with_mass_rank(system, q, v, t, params), q, v, t, params).qdd

    def momentum(q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        return _momentum(system, field, q, v, t, params)

    (by_q, by_v, by_t), _ = jax.grad(momentum, (0, 1, 2), has_aux=True)(q, v, t)
    size = jnp.abs(by_q) @ jnp.abs(v) + jnp.abs(by_v) @ jnp.abs(a) + jnp.abs(by_t)
    value = jnp.stack(momentum(q, v, t))
    return by_q @ v + by_v @ a + by_t, size, value


def _basis_rates(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    """Rates and values, each with the size of its terms, for each unit (c, W, s) and state."""
    n = system.n
    unit = jnp.eye(n + n * n + 1, dtype=q.dtype)

    def rate(x: Array) -> Any:
        return lambda q, t, params: (x[:n] + x[n:-1].reshape(n, n) @ q, x[-1])

    def rates_at(q: Array, v: Array, t: Array) -> tuple[Array, Array, Array]:
        return jax.lax.map(lambda x: _rate(system, rate(x), q, v, t, params), unit)

    return jax.jit(jax.vmap(rates_at))(q, v, t)


def _integrals(rates: HostArray, sizes: HostArray, values: HostArray, system: System) -> HostArray:
    """(c, W, s) of independent conserved quantities: energy, constant fields, then the rest."""
    scale = np.maximum(sizes.max(1, keepdims=True), np.finfo(rates.dtype).tiny)
    rows, largest = rates / scale, (sizes / scale).max(0)
    largest = np.where(largest > 0, largest, 1.0)
    integrals: HostArray = np.zeros((0, rates.shape[1]), rates.dtype)
    identity = np.eye(rates.shape[1], dtype=rates.dtype)
    moves = np.arange(system.n) < system.dynamics.mechanical  # without integrals of states
    fields = identity[np.concatenate([moves, np.outer(moves, moves).ravel(), [True]])]
    for part in (identity[-1:], fields[: moves.sum()], fields):
        null = null_vectors(rows @ part.T, part @ largest) @ part
        if len(null):
            integrals = np.concatenate([integrals, _nontrivial(null, integrals, values)])
    return integrals


def _nontrivial(candidates: HostArray, trivial: HostArray, values: HostArray) -> HostArray:
    """Select the integrals that vary from state to state and are independent of those found."""
    candidates = outside_span(candidates, trivial)
    span = trivial
    chosen = []
    for x in candidates:
        tried = np.concatenate([span, x[None]])
        levels, size = values[..., 0] @ tried.T, (values[..., 1] @ np.abs(tried).T).max(0)
        levels = (levels - levels.mean(0)) / np.where(size > 0, size, 1.0)
        tolerance = 10 * negligible(levels.dtype) * np.sqrt(len(levels))
        if np.linalg.matrix_rank(levels, tol=tolerance) == len(tried):
            span = tried
            chosen.append(x)
    return np.array(chosen).reshape(-1, candidates.shape[1])


def _names(symmetries: Symmetries) -> list[str]:
    names = []
    for field, W, s in zip(symmetries.texts(), symmetries.W, symmetries.s, strict=True):
        cyclic = not np.any(W) and not float(s) and field.endswith(": 1")
        short = field.removesuffix(": 1") if cyclic else field
        names.append("energy" if field == "time: 1" else f"momentum of {short}")
    return names


def _quantity(symmetries: Symmetries, k: int, name: str) -> Quantity:
    c, W, s = symmetries.c[k], symmetries.W[k], symmetries.s[k]
    if name == "energy":  # and not its negative, which is J of a shift of time by 1
        s = -s
    return Quantity(name, lambda q, t, params: (c + W @ q, s), is_conserved=True, rate=0.0)


def _tested(
    system: System, name: str, user_field: Field, q: Array, v: Array, t: Array, params: Params
) -> Quantity:
    def field(q: Array, t: Array, params: Params) -> tuple[Array, Array]:
        xi = jnp.asarray(user_field(q, t, params)).astype(q.dtype)
        if xi.shape != q.shape:
            raise ValueError(
                f"Argument `fields` must hold functions that return shape {q.shape}, but "
                f"{name!r} returned {xi.shape}."
            )
        return xi, jnp.zeros((), q.dtype)

    rates, sizes, _ = jax.jit(jax.vmap(lambda q, v, t: _rate(system, field, q, v, t, params)))(
        q, v, t
    )
    size = np.asarray(sizes)
    rate = float((np.abs(np.asarray(rates)) / np.where(size > 0, size, 1.0)).max(initial=0.0))
    return Quantity(name, field, is_conserved=rate <= negligible(q.dtype), rate=rate)
