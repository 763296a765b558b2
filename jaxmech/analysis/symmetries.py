"""`symmetries`: the flows that map every motion of a system to another one.

A symmetry is a velocity field xi(q) = c + W q, together with a shift of time at the rate s. The
functions of the system are invariant along it, with velocities that change at the rate W v:

    dL/dq . xi + dL/dv . W v + s dL/dt = 0,         dphi/dq . xi + s dphi/dt = 0,
    dF/dq xi + dF/dv W v + s dF/dt + W^T F = 0,     dpsi/dq . xi + dpsi/dv . W v + s dpsi/dt = 0

These are linear in c, W and s, so all such fields are the null space of one matrix: its rows are
the conditions at many states on the constraints. Translations and turns about an axis are of this
form in Cartesian coordinates, angles and quaternions alike. Noether: dL/dv . xi - s (v . dL/dv - L)
is conserved where no force and no constraint does work along xi.

States of first order z with dz/dt = r may turn into each other, at the rate W_z z with

    dr/dq . xi + dr/dv . W v + s dr/dt = W_z r.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.analysis.states import checked_in_rates
from jaxmech.linalg import min_norm_solve, unit
from jaxmech.system import (
    Acceleration,
    Params,
    Subject,
    System,
    constraint_jacobians,
    reach,
    reads_integrals,
)
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import is_known
from jaxmech.utils.jit_cache import jit_of


class Symmetries(eqx.Module):
    """A basis of the fields xi(q) = c + W q with shifts of time s that are symmetries.

    The result of `symmetries`.

    Attributes:
        c: constant parts, shape (k, n).
        W: linear parts, shape (k, n, n).
        s: shifts of time, shape (k,).
        coordinates: names of the coordinates.
    """

    c: Float[Array, " k n"]
    W: Float[Array, " k n n"]
    s: Float[Array, " k"]
    coordinates: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, basis: HostArray, coordinates: Sequence[str], dtype: Any) -> "Symmetries":
        """The fields of vectors (c, W, s), one in each row."""
        n = len(coordinates)
        c, W, s = (jnp.asarray(x, dtype) for x in np.split(basis, [n, n + n * n], axis=1))
        return cls(c, W.reshape(-1, n, n), s[:, 0], tuple(coordinates))

    def fields(self, q: Any) -> Float[Array, " k n"]:
        """All xi(q) at a state, shape (k, n)."""
        return self.c + self.W @ jnp.asarray(q)

    def along(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " k"]:
        """The smallest combination whose field at q is v, with time advancing at unit rate.

        Args:
            q: coordinates, shape (n,).
            v: velocities, shape (n,).
        """
        if not self.s.shape[0]:
            return self.s
        rows = jnp.concatenate([self.fields(q), self.s[:, None]], axis=1).T
        return min_norm_solve(rows, jnp.append(v, 1.0))

    def __repr__(self) -> str:
        if not is_known((self.c, self.W, self.s)) or not isinstance(self.c, jax.Array | np.ndarray):
            return f"Symmetries(coordinates={self.coordinates}, without values)"
        lines = [f"Symmetries: {len(self.s)}, each a rate of the coordinates"]
        return "\n".join([*lines, *("  " + text for text in self.texts())])

    def texts(self) -> list[str]:
        """Each field as text: the rate of every coordinate that it moves."""
        names = self.coordinates

        def term(x: float, name: str) -> str:
            return name if x == 1 else f"-{name}" if x == -1 else f"{x:.4g} {name}".strip()

        texts, digits = [], 9 if self.c.dtype == np.float64 else 4
        for c, W, s in zip(
            *(np.asarray(x, float).round(digits) + 0.0 for x in (self.c, self.W, self.s)),
            strict=True,
        ):
            parts = []
            for i, name in enumerate(names):
                terms = [f"{c[i]:.4g}"] if c[i] else []
                terms += [term(W[i, j], names[j]) for j in np.flatnonzero(W[i])]
                parts += [f"{name}: {' + '.join(terms)}"] if terms else []
            parts += [f"time: {s:.4g}"] if s else []
            texts.append(", ".join(parts))
        return texts


def symmetries(
    system: Subject, q: Any, v: Any, t: Any = 0.0, params: Params = None, *, linear: bool = True
) -> Symmetries:
    """The affine fields along which the functions of a system are invariant.

    A host function: it compares derivatives of the functions at random states on the constraints
    around the given one, at distances up to 0.3 (1 + |q|) in each coordinate: where a length of
    zero stands beside millions, use another state or unit. The cost grows as n^6, ten seconds for
    40 coordinates.

    Args:
        system: the system, with n coordinates.
        q: coordinates around which states are drawn, shape (n,).
        v: velocities around which states are drawn, shape (n,), or quasi-velocities.
        t: time [s].
        params: the parameters; a symmetry may depend on their values, such as equal moments of
            inertia.
        linear: whether to include fields with a linear part; otherwise cyclic coordinates only.

    Returns:
        `Symmetries`: first those without a linear part, each in as few coordinates as possible.

    Raises:
        TypeError: if `system` is not a `System`.
        ValueError: if a shape is wrong, a value is not finite, or no states on the constraints are
            found near `q` and `v`.
    """
    system, (q, v, t, params) = checked_in_rates(system, q, v, t, params)
    n = system.n
    states = generic_states(system, q, v, t, params, 12 + (n if linear else 0))
    conditions = _conditions(system, *states, params)
    rows = np.concatenate([np.asarray(x).reshape(-1, x.shape[2]) for x in conditions])
    # The conditions on W are those on c times coordinates, which may be thousands of mm.
    size = np.abs(np.asarray(states[0])).max(0)
    sizes = np.concatenate([np.ones(n), np.tile(np.where(size > 0, size, 1.0), n), np.ones(1)])
    sizes = sizes.astype(rows.dtype)
    rows, lengths = unit(rows[np.isfinite(rows).all(1)] / sizes)
    rows = rows[lengths > 0] * sizes
    units = np.eye(n + n * n + 1, dtype=rows.dtype)
    fields = units[_is_of_symmetry(system, reads_integrals(system, q, v, t, params))]
    constant = fields[(fields[:, n:-1] == 0).all(1)]
    vectors = null_vectors(rows @ constant.T, constant @ sizes) @ constant
    if linear:
        found = null_vectors(rows @ fields.T, fields @ sizes) @ fields
        vectors = np.concatenate([vectors, outside_span(found, vectors)])
    return Symmetries.of(vectors, system.coordinates, q.dtype)


def _is_of_symmetry(system: System, reads_integrals: bool) -> HostArray:
    """Which of the numbers (c, W, s) a symmetry may have, shape (n + n^2 + 1,).

    Coordinates and states do not turn into each other. Integrals that nothing reads do not move.
    """
    is_state = np.arange(system.n) >= system.dynamics.mechanical
    blocks = is_state[:, None] == is_state[None]
    return np.concatenate([~is_state | reads_integrals, blocks.ravel(), [True]])


def negligible(dtype: Any) -> float:
    """The size relative to its terms of a derivative that counts as zero; 1.5e-8 in float64."""
    return float(np.finfo(dtype).eps) ** 0.5


def null_vectors(rows: HostArray, sizes: HostArray) -> HostArray:
    """The null space of a matrix whose columns have these sizes, made sparse by elimination."""
    rows = rows / sizes
    # The triangle has the same null space, and far fewer rows than there are conditions.
    gram = np.linalg.qr(rows, mode="r") if len(rows) > rows.shape[1] else rows
    _, singular_values, V = np.linalg.svd(gram)
    rank = int(
        (
            singular_values > negligible(rows.dtype) * max(1.0, singular_values.max(initial=0.0))
        ).sum()
    )
    null = V[rank:] / sizes
    return _echelon(np.linalg.qr(null.T)[0].T)


def _echelon(basis: HostArray) -> HostArray:
    """Gauss-Jordan elimination with the largest number of each row as its pivot, scaled to 1."""
    basis = basis.copy()
    for k in range(len(basis)):
        sizes = np.abs(basis[k:])
        # Of numbers that are equal up to round-off the first one, on every processor.
        largest = sizes >= (1 - 1e-6) * sizes.max()
        row, column = divmod(int(np.argmax(largest)), sizes.shape[1])
        basis[[k, k + row]] = basis[[k + row, k]]
        basis[k] /= basis[k, column]
        is_other_row = np.arange(len(basis)) != k
        basis[is_other_row] -= np.outer(basis[is_other_row, column], basis[k])
    basis[np.abs(basis) < 0.1 * negligible(basis.dtype)] = 0.0
    return basis


def outside_span(basis: HostArray, first: HostArray) -> HostArray:
    """The part of a basis outside the span of the first vectors."""
    if not len(first):
        return basis
    Q = np.linalg.qr(first.T)[0]
    remainder = basis - (basis @ Q) @ Q.T
    _, sizes, V = np.linalg.svd(remainder, full_matrices=False)
    return _echelon(V[sizes > 100 * negligible(basis.dtype)])


@jit_of("system")
def _conditions(
    system: System, q: Array, v: Array, wild: Array, t: Array, params: Params
) -> list[Array]:
    """The rows on (c, W, s) by L, the forces and the constraints, (N, k, n + n^2 + 1) each."""
    dynamics = system.dynamics

    def lagrangian(q: Array, v: Array, t: Array) -> Array:
        return dynamics.lagrangian_value(q, v, t, params)[None]

    def rates(q: Array, v: Array, t: Array) -> Array:
        return dynamics.state_rates(q, v, t, params)

    def conditions_at(q: Array, v: Array, wild: Array, t: Array) -> list[Array]:
        rows = [_rows(lagrangian, q, wild, t)]
        # d/dv of dL/dv . W v is W^T dL/dv beside the change of dL/dv, as for a force.
        momentum = jax.jacfwd(lambda q, v, t: dynamics.lagrangian_value(q, v, t, params), 1)
        for force in (momentum, *_forces(system, q, wild, params)):
            by_turn = jnp.eye(q.size)[:, None, :] * force(q, wild, t)[None, :, None]
            rows.append(_rows(force, q, wild, t, by_turn))
        turned = jnp.zeros_like(q).at[dynamics.mechanical :].set(rates(q, wild, t))
        by_turn = (
            -jnp.eye(q.size, dtype=q.dtype)[dynamics.mechanical :, :, None] * turned[None, None]
        )
        rows.append(_rows(rates, q, wild, t, by_turn))
        rows.append(_rows(lambda q, v, t: dynamics.position_level(q, t, params), q, v, t))
        rows.append(_rows(lambda q, v, t: dynamics.velocity_level(q, v, t, params), q, v, t))
        for c in system.constraints:
            if isinstance(c, Acceleration):
                A, b = c.rows(q, v, t, params)
                a = min_norm_solve(A, b)  # an acceleration that satisfies it, which W turns as well
                by_turn = A[:, :, None] * a[None, None, :]
                level = _rows(
                    lambda q, v, t, c=c, a=a: c.value(q, v, a, t, params), q, v, t, by_turn
                )
                rows.append(level)
        return rows

    return jax.vmap(conditions_at)(q, v, wild, t)


def _rows(fn: Any, q: Array, v: Array, t: Array, by_turn: Array | float = 0.0) -> Array:
    """The change of fn(q, v, t), shape (k,), by unit (c, W, s); `by_turn` is added to that by W."""
    by_q, by_v, by_t = jax.jacfwd(fn, (0, 1, 2))(q, v, t)
    by_W = by_q[:, :, None] * q[None, None] + by_v[:, :, None] * v[None, None] + by_turn
    return jnp.concatenate([by_q, by_W.reshape(len(by_q), q.size**2), by_t[:, None]], axis=1)


def _forces(system: System, q: Array, v: Array, params: Params) -> list[Any]:
    forces: list[Any] = []
    if system.force is not None:
        forces.append(lambda q, v, t: system.dynamics.applied_force(q, v, t, params))
    if system.nonideal is not None:
        count = sum(system.dynamics.sizes(q, v, jnp.zeros((), q.dtype), params))
        # Friction must be invariant for any multipliers, so generic ones are used.
        multipliers = jnp.asarray(np.random.default_rng(5).uniform(0.5, 1.5, count), q.dtype)
        forces.append(lambda q, v, t: system.dynamics.nonideal_force(q, v, multipliers, t, params))
    return forces


def generic_states(
    system: System, q: Array, v: Array, t: Array, params: Params, count: int
) -> tuple[Array, ...]:
    """States on the constraints around the given one, and velocities that need not be on them."""
    draw = np.random.default_rng(0)
    shape = (count, system.n)
    size_q, size_v = (1 + np.abs(np.asarray(x)) for x in (q, v))
    qs = np.asarray(q) + 0.3 * size_q * draw.uniform(-1, 1, shape)
    vs = np.asarray(v) + size_v * draw.uniform(-1, 1, shape)
    wild = size_v * draw.uniform(-2, 2, shape)
    ts = np.asarray(t) + draw.uniform(0, 1, count)
    # Gauss-Newton for all states at once; those that do not converge are left out.
    for _ in range(40):
        qs = qs - smallest_change(*levels(system, qs, vs, ts, params)[0])
    for _ in range(10):
        vs = vs - smallest_change(*levels(system, qs, vs, ts, params)[1])
    close = np.ones(count, bool)
    for (level, A), x in zip(levels(system, qs, vs, ts, params), (qs, vs), strict=True):
        error = np.abs(level) / np.where(level == 0, 1.0, jax.vmap(reach)(A, jnp.asarray(x)))
        close &= np.asarray(error).max(1, initial=0.0) < 0.1 * negligible(level.dtype)
    if 2 * close.sum() < count:
        raise ValueError(
            f"Arguments `q` and `v` must be near states that satisfy the constraints, but only "
            f"{close.sum()} of {count} were found around them; `assemble` them first."
        )
    return tuple(jnp.asarray(x[close], q.dtype) for x in (qs, vs, wild, ts))


Level = tuple[Array, Array]  # residuals of N states, (N, k), and their Jacobians, (N, k, n)


@jit_of("system")
def levels(system: System, q: Any, v: Any, t: Any, params: Params) -> tuple[Level, Level]:
    """The constraints on positions and on velocities at N states."""

    def levels_at(q: Array, v: Array, t: Array) -> tuple[Level, Level]:
        A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
        position = system.dynamics.position_level(q, t, params), A_position
        return position, (system.dynamics.velocity_level(q, v, t, params), A_velocity)

    return jax.vmap(levels_at)(jnp.asarray(q), jnp.asarray(v), jnp.asarray(t))


def smallest_change(level: Array, A: Array) -> HostArray:
    """The minimum-norm change of each state that cancels its residuals to first order, (N, n)."""
    rcond = 0.1 * negligible(A.dtype)
    inverse = np.linalg.pinv(np.asarray(A), rcond) if level.size else np.swapaxes(A, 1, 2)
    return np.einsum("kij,kj->ki", inverse, np.asarray(level))
