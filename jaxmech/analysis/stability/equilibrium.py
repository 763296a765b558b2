"""`equilibrium`: where a system stays at rest, or moves on steadily.

Unknown are q, the multipliers and, for a steady motion, the rates alpha of the symmetries that it
goes along: v = xi(q) = c + W q and a = W v, where alpha combines c and W of `symmetries`. Known are
the balance of forces, M a = Q + A^T lambda, the constraints at all levels and the rates
that are given. The equations are solved by steps of Levenberg and Marquardt, the smallest possible
ones in the scaled unknowns; so redundant rows and directions in which nothing changes do no harm.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.analysis.stability.balance import balance, row_order
from jaxmech.analysis.stability.symmetries import Symmetries
from jaxmech.analysis.stability.symmetries import symmetries as find
from jaxmech.linalg import QR, column_space_projector, times
from jaxmech.system import Params, System
from jaxmech.utils.checks import is_known, require_finite, require_kind

ITERATIONS = 100
DAMPING = (0.0, 1e-8, 1e-5, 1e-3, 1e-1, 10.0)  # tried side by side, the best is taken
EASY = 1e3  # by how much multipliers change more easily than coordinates


class Equilibrium(eqx.Module):
    """A state of rest or of steady motion; under `jax.vmap` with a leading batch axis.

    Attributes:
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        multipliers: by constraint name, the smallest possible, shape (k,).
        reactions: by constraint name, A_k^T lambda_k, the generalized force on the system, (n,).
        residual: the largest force that is not balanced over the largest at play, and violation of
            a constraint over its row.
        converged: whether that is round-off.
        coordinates: their names.

    Example:
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> jm.equilibrium(model.system, [0.3, -0.9], model.params)
        Equilibrium: at rest
          x1  0
          y1  -1
          rod  9.81 (size of the reaction)
    """

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    multipliers: dict[str, Float[Array, " _"]]
    reactions: dict[str, Float[Array, " n"]]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]
    coordinates: tuple[str, ...] = eqx.field(static=True)

    def __repr__(self) -> str:
        is_array = isinstance(self.q, jax.Array | np.ndarray)
        if not is_array or not is_known(self.q):
            return f"Equilibrium(coordinates={self.coordinates}, without values)"
        if self.q.ndim != 1:
            count = int(np.sum(self.converged))
            return f"Equilibrium: {self.q.shape[:-1]} of them, {count} found"
        return "\n".join(_card(self))


def equilibrium(
    system: System,
    q: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    fixed: Sequence[str] = (),
    v: Mapping[str, Any] | Any = None,
    symmetries: Symmetries | None = None,
) -> Equilibrium:
    """The equilibrium, or the steady motion, near a guess.

    Pure under `jit` and `vmap`, where `converged` says whether one was found; its derivatives by
    the parameters and given rates are those of the solution (implicit function theorem).

    Args:
        system: the system, with n coordinates.
        q: guess of the coordinates, shape (n,).
        params: the parameters that the functions of the system expect.
        t: time [s].
        fixed: names of coordinates that keep their guess.
        v: for a steady motion the rates of named coordinates, which are kept, or a guess of all
            velocities, shape (n,), from which it goes to the nearest one; by default at rest.
        symmetries: what `jm.symmetries` found, along which a steady motion goes. By default it is
            found for the guess; under `jit` and `vmap` a steady motion needs it.

    Returns:
        An `Equilibrium`.

    Raises:
        TypeError: `system` is no `System`, or names are not in a sequence.
        ValueError: a name is unknown, a shape is wrong, a value not finite, no equilibrium is found
            (not under `jit` or `vmap`), or no symmetries are given where they are needed.

    Example:
        >>> import jax.numpy as jnp
        >>> def hoop(q, v, t, p):  # a bead on a hoop of radius 1 that turns
        ...     return (v[0] ** 2 + (v[1] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])
        >>> bead = System(hoop, coordinates=("angle", "turn"))
        >>> found = equilibrium(bead, [0.9, 0.0], v={"turn": 5.0})
        >>> print(found.q.round(6), jnp.cos(found.q[0]) * 5.0**2)
        [1.167678 0.      ] 9.81
    """
    require_kind("system", system, System, "System(...)")
    given, guess = _rates(system, v)
    q, guess, t, params = system.arguments(q, guess, t, params)
    known = is_known((q, guess, given, t, params))
    free = _free(system, fixed)
    if known:
        require_finite(q=q, v=(guess, given), t=t, params=params)
    if v is None:
        symmetries = _none(system, q)
    elif symmetries is None:
        if not known:
            raise ValueError(
                "Argument `symmetries` must be given for a steady motion under `jit` or `vmap`; "
                "find them outside by `symmetries(system, q, v, t, params)`."
            )
        symmetries = find(system, q, guess, t, params)
    names = tuple(given)
    rates = jnp.stack([jnp.asarray(given[n], q.dtype) for n in names]) if names else q[:0]
    found = _equilibrium(system, free, names, v is not None, q, guess, rates, t, params, symmetries)
    if known and not bool(found.converged):
        what = "steady motion" if v is not None else "equilibrium"
        held = f" with {', '.join(fixed)} held fixed; release one of them, or" if fixed else ";"
        raise ValueError(
            f"No {what} was found near the guess: what is left is {float(found.residual):.2g} of "
            f"the forces at play{held} give a closer guess, or check that there is one."
        )
    return found


def _rates(system: System, v: Any) -> tuple[dict[str, Any], Any]:
    """Rates that are given by name, and a guess of all velocities."""
    if v is None:
        return {}, np.zeros(system.n)
    if not isinstance(v, Mapping):
        return {}, v
    for name in v:
        if name not in system.coordinates:
            raise ValueError(
                f"Argument `v` must hold names of coordinates, but holds {name!r}; the coordinates "
                f"are {', '.join(system.coordinates)}."
            )
    return dict(v), jnp.stack([1.0 * jnp.asarray(v.get(name, 0.0)) for name in system.coordinates])


def _free(system: System, fixed: Sequence[str]) -> tuple[int, ...]:
    if isinstance(fixed, str):
        raise TypeError(
            f"Argument `fixed` must be a sequence of names, but is {fixed!r}; write ({fixed!r},)."
        )
    for name in fixed:
        if name not in system.coordinates:
            raise ValueError(
                f"Argument `fixed` must hold names of coordinates, but holds {name!r}; the "
                f"coordinates are {', '.join(system.coordinates)}."
            )
    return tuple(i for i, name in enumerate(system.coordinates) if name not in fixed)


def _none(system: System, q: Array) -> Symmetries:
    n = system.n
    empty = jnp.zeros((0,), q.dtype)
    return Symmetries(empty.reshape(0, n), empty.reshape(0, n, n), empty, tuple(system.coordinates))


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _equilibrium(
    system: System,
    free: tuple[int, ...],
    names: tuple[str, ...],
    moving: bool,
    q: Array,
    guess: Array,
    rates: Array,
    t: Array,
    params: Params,
    symmetries: Symmetries,
) -> Equilibrium:
    order = row_order(system, system.sizes(q, guess, t, params))
    index = np.array(free, dtype=int)
    named = np.array([list(system.coordinates).index(name) for name in names], dtype=int)
    alpha = symmetries.along(q, guess)
    rest, none = jnp.zeros_like(q), jnp.zeros(len(order), q.dtype)
    at_guess = balance(system, q, guess, t, params, rest, none)
    largest = jnp.max(jnp.abs(at_guess.force))
    size = jax.lax.stop_gradient(jnp.where(largest > 0, largest, 1.0))

    def state(z: Array) -> tuple[Array, Array, Array, Array]:
        """q, v, a and the multipliers of the scaled unknowns."""
        own, scaled, rates = jnp.split(z, [len(free), len(free) + len(order)])
        where = q.at[index].set(own) if len(free) < system.n else own
        W = jnp.tensordot(rates, symmetries.W, 1)
        v = jnp.tensordot(rates, symmetries.c, 1) + W @ where
        return where, v, W @ v, scaled * EASY * size

    def equations(z: Array, params: Params, rates: Array, t: Array) -> Array:
        where, v, a, multipliers = state(z)
        found = balance(system, where, v, t, params, a, multipliers)
        position = system.position_level(where, t, params)
        parts = [found.force / size, position, found.speed, found.rows[found.speed.size :]]
        if moving:
            shift = jnp.tensordot(z[len(free) + len(order) :], symmetries.s, 1)
            parts += [v[named] - rates, shift[None] - 1]
        return jnp.concatenate(parts)

    start = jnp.concatenate([q[index], none, alpha])
    frozen = jax.lax.stop_gradient((params, rates, t))
    z, miss = _solve(lambda z: equations(z, *frozen), jax.lax.stop_gradient(start))
    last = jax.lax.stop_gradient(QR().factor(jax.jacfwd(lambda z: equations(z, *frozen))(z)))
    step, _ = last.smallest(equations(z, params, rates, t))
    z = z - (step - jax.lax.stop_gradient(step))
    where, v, a, multipliers = state(z)
    A = jax.jacfwd(lambda a: balance(system, where, v, t, params, a, none).rows)(a)
    multipliers = times(column_space_projector(A), multipliers)
    back = np.argsort(order)
    by_name = _by_name(system, multipliers[back], A[back], q, v, t, params)
    good = miss <= 100 * jnp.finfo(q.dtype).eps ** 0.75
    return Equilibrium(where, v, *by_name, miss, good, tuple(system.coordinates))


def _by_name(
    system: System, multipliers: Array, A: Array, q: Array, v: Array, t: Array, params: Params
) -> tuple[dict[str, Array], dict[str, Array]]:
    ends = list(accumulate(system.sizes(q, v, t, params)))
    rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    found = {c.name: multipliers[k] for c, k in zip(system.constraints, rows, strict=True)}
    forces = {c.name: A[k].T @ found[c.name] for c, k in zip(system.constraints, rows, strict=True)}
    return found, forces


def _solve(equations: Any, start: Array) -> tuple[Array, Array]:
    """A zero of the equations near the start, and the largest one that is left."""

    def missed(z: Array) -> Array:
        value = equations(z)
        return jnp.where(jnp.all(jnp.isfinite(value)), jnp.sqrt((value * value).sum()), jnp.inf)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, size, _, k = carry
        F, J = equations(z), jax.jacfwd(equations)(z)

        def trial(damping: Array) -> Array:
            damped = jnp.sqrt(damping * size) * jnp.eye(len(F), dtype=z.dtype)
            whole = jnp.concatenate([J, damped], axis=1)
            return z - QR().factor(whole).smallest(F)[0][: z.size]

        trials = jax.vmap(trial)(jnp.asarray(DAMPING, z.dtype))
        sizes = jax.vmap(missed)(trials)
        best = jnp.argmin(sizes)
        better = sizes[best] < size
        return (
            jnp.where(better, trials[best], z),
            jnp.where(better, sizes[best], size),
            better,
            k + 1,
        )

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, size, better, k = carry
        return better & (k < ITERATIONS) & (size > 0)

    first = (start, missed(start), jnp.asarray(True), jnp.zeros((), jnp.int32))
    z, _, _, _ = jax.lax.while_loop(goes_on, step, first)
    return z, jnp.max(jnp.abs(equations(z)), initial=0.0)


def _card(found: Equilibrium) -> list[str]:
    moving = bool(np.any(np.asarray(found.v)))
    lines = ["Equilibrium: in steady motion" if moving else "Equilibrium: at rest"]
    width = max(map(len, found.coordinates))
    for name, x, rate in zip(found.coordinates, found.q, found.v, strict=True):
        text = f"  {name:<{width}}  {_short(x)}"
        lines.append(text + (f", changing at {_short(rate)} per second" if rate else ""))
    for name, force in found.reactions.items():
        size = _short(np.linalg.norm(np.asarray(force)))
        lines.append(f"  {name:<{width}}  {size} (size of the reaction)")
    if not bool(found.converged):
        lines.append(f"  not found: {float(found.residual):.2g} of the forces is left")
    return lines


def _short(x: Any) -> str:
    return f"{0.0 if abs(float(x)) < 1e-12 else float(x):.6g}"
