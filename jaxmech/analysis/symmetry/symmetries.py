"""`symmetries`: the flows that map every motion of a system to another one.

A symmetry is a velocity field xi(q) = c + W q, together with a shift of time at the rate s. The
functions of the system are invariant along it, with velocities that change at the rate W v:

    dL/dq . xi + dL/dv . W v + s dL/dt = 0,         dphi/dq . xi + s dphi/dt = 0,
    dF/dq xi + dF/dv W v + s dF/dt + W^T F = 0,     dpsi/dq . xi + dpsi/dv . W v + s dpsi/dt = 0

These are linear in c, W and s, so all such fields are the null space of one matrix: its rows are
the conditions at many states on the constraints. Translations and turns about an axis are of this
form in Cartesian coordinates, angles and quaternions alike. Noether: dL/dv . xi - s (v . dL/dv - L)
is conserved where no force and no constraint does work along xi.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from jaxmech.constraints import Acceleration
from jaxmech.linalg import shortest
from jaxmech.system import Params, System
from jaxmech.utils.checks import is_known, require_finite, require_kind
from jaxmech.utils.jit_cache import jit_of

Numbers = NDArray[np.floating]
_NULL = 1e-8  # relative size of a singular value that counts as zero; round-off is about 1e-13


class Symmetries(eqx.Module):
    """A basis of the fields xi(q) = c + W q with shifts of time s that are symmetries.

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
        return shortest(rows, jnp.append(v, 1.0))

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

        texts = []
        for c, W, s in zip(
            *(np.asarray(x).round(9) + 0.0 for x in (self.c, self.W, self.s)), strict=True
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
    system: System, q: Any, v: Any, t: Any = 0.0, params: Params = None, *, linear: bool = True
) -> Symmetries:
    """The affine fields along which the functions of a system are invariant.

    A host function: it compares derivatives of the functions at random states on the constraints
    around the given one. The cost grows as n^6, ten seconds for 40 coordinates.

    Args:
        system: the system, with n coordinates.
        q: coordinates around which states are drawn, shape (n,).
        v: velocities around which states are drawn, shape (n,).
        t: time [s].
        params: the parameters; a symmetry may depend on their values, such as equal moments of
            inertia.
        linear: whether to include fields with a linear part; otherwise cyclic coordinates only.

    Returns:
        `Symmetries`: first those without a linear part, each in as few coordinates as possible.

    Raises:
        TypeError: `system` is not a `System`.
        ValueError: a shape is wrong, or a value is not finite.

    Example:
        >>> from jaxmech.constraints import Holonomic
        >>> spherical = System(
        ...     lambda q, v, t, p: v @ v / 2 - 9.81 * q[2],
        ...     [Holonomic(lambda q, t, p: q @ q - 1.0, "rod")],
        ...     coordinates=("x", "y", "z"),
        ... )
        >>> symmetries(spherical, [0.6, 0.0, -0.8], [0.0, 0.0, 0.0])
        Symmetries: 2, each a rate of the coordinates
          time: 1
          x: y, y: -x
    """
    require_kind("system", system, System, "System(...)")
    q, v, t, params = system.arguments(q, v, t, params)
    require_finite(q=q, v=v, t=t, params=params)
    n = system.n
    states = generic_states(system, q, v, t, params, 12 + (n if linear else 0))
    rows = np.concatenate([_conditions(*parts) for parts in _pieces(system, states, params)])
    rows = rows[np.isfinite(rows).all(1)]
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows[lengths > 0] / lengths[lengths > 0][:, None]
    constant = np.r_[np.arange(n), n + n * n]
    first = np.zeros((0, n + n * n + 1))
    basis = null_vectors(rows[:, constant])
    first = np.zeros((len(basis), n + n * n + 1))
    first[:, constant] = basis
    found = first
    if linear:
        found = np.concatenate([first, outside_span(null_vectors(rows), first)])
    dtype = q.dtype
    return Symmetries(
        c=jnp.asarray(found[:, :n], dtype),
        W=jnp.asarray(found[:, n:-1].reshape(-1, n, n), dtype),
        s=jnp.asarray(found[:, -1], dtype),
        coordinates=tuple(system.coordinates),
    )


def null_vectors(rows: Numbers) -> Numbers:
    """The null space of a matrix, its vectors made sparse by elimination."""
    # The triangle has the same null space, and far fewer rows than there are conditions.
    gram = np.linalg.qr(rows, mode="r") if len(rows) > rows.shape[1] else rows
    _, sizes, V = np.linalg.svd(gram)
    rank = int((sizes > _NULL * max(1.0, sizes.max(initial=0.0))).sum())
    return _echelon(V[rank:])


def _echelon(basis: Numbers) -> Numbers:
    """Gauss-Jordan elimination with the largest number of each row as its pivot, scaled to 1."""
    basis = basis.copy()
    for k in range(len(basis)):
        rest = np.abs(basis[k:])
        # Of numbers that are equal up to round-off the first one, on every processor.
        largest = rest >= (1 - 1e-6) * rest.max()
        row, column = divmod(int(np.argmax(largest)), rest.shape[1])
        basis[[k, k + row]] = basis[[k + row, k]]
        basis[k] /= basis[k, column]
        others = np.arange(len(basis)) != k
        basis[others] -= np.outer(basis[others, column], basis[k])
    basis[np.abs(basis) < 1e-9] = 0.0
    return basis


def outside_span(basis: Numbers, first: Numbers) -> Numbers:
    """The part of a basis outside the span of the first vectors."""
    if not len(first):
        return basis
    Q = np.linalg.qr(first.T)[0]
    rest = basis - (basis @ Q) @ Q.T
    _, sizes, V = np.linalg.svd(rest, full_matrices=False)
    return _echelon(V[sizes > 1e-6])


Pieces = tuple[Numbers, Numbers, Numbers, Numbers, Numbers]


def _conditions(by_q: Numbers, by_v: Numbers, by_t: Numbers, q: Numbers, extra: Numbers) -> Numbers:
    """Rows on (c, W, s) of by_q . (c + W q) + by_v . W v + s by_t; `extra` is by_v v^T."""
    linear = by_q[:, :, None] * q[:, None, :] + extra
    flat = linear.reshape(len(by_q), q.shape[1] ** 2)
    return np.concatenate([by_q, flat, by_t[:, None]], axis=1)


def _pieces(system: System, states: tuple[Array, ...], params: Params) -> list[Pieces]:
    """The derivatives of each function at every state, as arguments of `_conditions`."""
    found = _derivatives(system, *states, params)
    q = np.asarray(states[0])
    pieces = []
    for by_q, by_v, by_t, extra in (jax.tree.map(np.asarray, x) for x in found):
        rows = by_q.shape[1]
        flat = [x.reshape(-1, *x.shape[2:]) for x in (by_q, by_v, by_t, extra)]
        pieces.append((*flat[:3], np.repeat(q, rows, axis=0), flat[3]))
    return pieces


@jit_of("system")
def _derivatives(
    system: System, q: Array, v: Array, wild: Array, t: Array, params: Params
) -> list[tuple[Array, ...]]:
    """Derivatives of L, F and the constraints by q, v, t, and further coefficients of W."""

    def at(q: Array, v: Array, wild: Array, t: Array) -> list[tuple[Array, ...]]:
        found = [_of(lambda q, v, t: _energies(system, q, v, t, params), q, wild, t)]
        slope = jax.jacfwd(lambda q, v, t: system.lagrangian(q, v, t, params), 1)
        by_q, by_v, by_t, extra = _of(slope, q, wild, t)
        # d/dv of dL/dv . W v is W^T dL/dv beside the change of dL/dv
        covector = jnp.eye(len(q))[:, None, :] * slope(q, wild, t)[None, :, None]
        found.append((by_q, by_v, by_t, extra + covector))
        for force in _forces(system, q, wild, params):
            by_q, by_v, by_t, extra = _of(force, q, wild, t)
            covector = jnp.eye(len(q))[:, None, :] * force(q, wild, t)[None, :, None]
            found.append((by_q, by_v, by_t, extra + covector))
        position = _of(lambda q, v, t: system.position_level(q, t, params), q, v, t)
        velocity = _of(lambda q, v, t: system.velocity_level(q, v, t, params), q, v, t)
        found += [position, velocity]
        for c in system.constraints:
            if isinstance(c, Acceleration):
                found.append(_servo(c, q, v, t, params))
        return found

    return jax.vmap(at)(q, v, wild, t)


def _energies(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    """L as a vector of one entry, which is invariant along a symmetry."""
    return jnp.asarray(system.lagrangian(q, v, t, params))[None].astype(q.dtype)


def _forces(system: System, q: Array, v: Array, params: Params) -> list[Any]:
    forces = []
    if system.force is not None:
        given = system.force
        forces.append(lambda q, v, t: jnp.asarray(given(q, v, t, params)).astype(q.dtype))
    if system.nonideal is not None:
        count = sum(system.sizes(q, v, jnp.zeros((), q.dtype), params))
        # Friction must be invariant along a symmetry for any multipliers, so generic ones are
        # used.
        multipliers = jnp.asarray(np.random.default_rng(5).uniform(0.5, 1.5, count), q.dtype)
        forces.append(lambda q, v, t: system.nonideal_force(q, v, multipliers, t, params))
    return forces


def _of(fn: Any, q: Array, v: Array, t: Array) -> tuple[Array, ...]:
    """Derivatives of fn(q, v, t), shape (k,), and (dfn/dv) v^T."""
    by_q, by_v, by_t = jax.jacfwd(fn, (0, 1, 2))(q, v, t)
    return by_q, by_v, by_t, by_v[:, :, None] * v[None, None, :]


def _servo(c: Acceleration, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, ...]:
    """The same derivatives of chi(q, v, a, t), at an acceleration that satisfies it."""
    A, b = c.rows(q, v, t, params)
    a = jax.vmap(lambda r: shortest(A, r), 1, 1)(b[:, None])[:, 0]

    def chi(q: Array, v: Array, t: Array) -> Array:
        return c.value(q, v, a, t, params)

    by_q, by_v, by_t, extra = _of(chi, q, v, t)
    return by_q, by_v, by_t, extra + A[:, :, None] * a[None, None, :]


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
    # Gauss-Newton on the host for all states side by side; those that do not converge are left out
    # below.
    for _ in range(40):
        level, A = map(np.asarray, _level(system, qs, ts, params))
        qs = qs - _least(A, level)
    for _ in range(10):
        level, A = map(np.asarray, _speed(system, qs, vs, ts, params))
        vs = vs - _least(A, level)
    levels = _level(system, qs, ts, params)[0], _speed(system, qs, vs, ts, params)[0]
    close = np.all([(np.abs(np.asarray(level)) < 1e-9).all(1) for level in levels], axis=0)
    dtype = q.dtype
    return tuple(jnp.asarray(x[close], dtype) for x in (qs, vs, wild, ts))


def _least(A: Numbers, level: Numbers) -> Numbers:
    if not level.shape[1]:
        return np.zeros((len(level), A.shape[2]))
    return (np.linalg.pinv(A, rcond=1e-9) @ level[:, :, None])[:, :, 0]


@jit_of("system")
def _level(system: System, q: Any, t: Any, params: Params) -> tuple[Array, Array]:
    def at(q: Array, t: Array) -> tuple[Array, Array]:
        def level(q: Array) -> Array:
            return system.position_level(q, t, params)

        return level(q), jax.jacfwd(level)(q)

    return jax.vmap(at)(jnp.asarray(q), jnp.asarray(t))


@jit_of("system")
def _speed(system: System, q: Any, v: Any, t: Any, params: Params) -> tuple[Array, Array]:
    def at(q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        def level(v: Array) -> Array:
            return system.velocity_level(q, v, t, params)

        return level(v), jax.jacfwd(level)(v)

    return jax.vmap(at)(jnp.asarray(q), jnp.asarray(v), jnp.asarray(t))
