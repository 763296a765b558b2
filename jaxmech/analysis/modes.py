"""`modes`: eigenvalues and mode shapes of a linearization.

Zero eigenvalues are counted exactly, and simple ones have derivatives. LAPACK is called through
numpy, on the host: some releases of jaxlib hang when one program contains two batched LAPACK calls.
So a batch is a loop, about 0.1 ms for each matrix.

The QR algorithm returns a zero eigenvalue of multiplicity k as eps^(1/k), 1e-4 for k = 4, and a
vehicle has many of them, since its origin and heading have no effect. So null spaces are split off
by orthogonal transformations, one after the other, until the rest is regular. What counts as zero
must not depend on the unit of time, so x is first multiplied by the rate of the motion: in seconds,
the singular values 1 and 1e10 of an oscillator at 16 kHz look like a rank of 1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmech.analysis.linearization import Linearization
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import is_known, require_kind

SAME = 1e-7  # relative to the largest eigenvalue: counts as repeated


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors of a matrix A (j, j), zero eigenvalues first.

    A right = right diag(eigenvalues) and left^H A = diag(eigenvalues) left^H with left^H right = 1.
    The columns of zero eigenvalues are a basis of their Jordan chains in `right`, zero in `left`.
    """

    eigenvalues: Any  # (j,), complex
    right: Any  # (j, j)
    left: Any  # (j, j)
    zero: Any  # whether an eigenvalue is zero, (j,)
    simple: Any  # whether it is neither zero nor repeated, (j,)


@jax.custom_jvp
def spectrum(A: Array, M: Array, K: Array, rate: Array | float = 0.0) -> Spectrum:
    """The spectrum of A (j, j), from a symmetric problem where A is that of M x'' + K x = 0.

    `rate` is that of the forces at play: a K (l, k) far below rate^2 M is round-off.
    """
    j, kind = A.shape[-1], jnp.result_type(A.dtype, jnp.complex64)
    matrix, vector = jax.ShapeDtypeStruct((j, j), kind), jax.ShapeDtypeStruct((j,), kind)
    flags = jax.ShapeDtypeStruct((j,), jnp.bool_)
    shapes = Spectrum(vector, matrix, matrix, flags, flags)
    rate = jnp.asarray(rate, A.dtype)
    return on_host(partial(_many, kind), shapes, A, M, K, rate, vmap_method="broadcast_all")


def on_host(fn: Callable[..., Any], shapes: Any, *args: Any, vmap_method: str) -> Any:
    """Call a function of numpy arrays at once, or as a callback where values are traced."""

    def host(*args: Any) -> Any:
        return fn(*map(np.asarray, args))

    if is_known(args):
        return jax.tree.map(jnp.asarray, host(*args))
    return jax.pure_callback(host, shapes, *args, vmap_method=vmap_method)


@spectrum.defjvp
def _spectrum_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """dlambda = left^H dA right (left^H right = 1); zero for zeros, NaN for repeated ones.

    If all eigenvalues are simple, eigenvectors change by multiples of the others (Magnus,
    Econometric Theory 1, 1985), whose lengths do not matter. Otherwise their derivatives are NaN.
    """
    values = spectrum(*primals)
    dA = tangents[0].astype(values.right.dtype)
    D = values.left.conj().T @ dA @ values.right
    moved = jnp.diagonal(D) * jnp.where(values.simple | values.zero, 1.0, jnp.nan)
    no_tangents = [np.zeros(x.shape, jax.dtypes.float0) for x in (values.zero, values.simple)]
    apart = values.eigenvalues[None, :] - values.eigenvalues[:, None]
    couplings = jnp.where(apart != 0, D / jnp.where(apart != 0, apart, 1.0), 0.0)
    unknown = jnp.where(values.simple.all(), 0.0, jnp.nan) * dA.sum()
    right_tangents, left_tangents = (
        values.right @ couplings + unknown,
        unknown - values.left @ couplings.conj().T,
    )
    return values, Spectrum(moved, right_tangents, left_tangents, *no_tangents)


def _many(kind: Any, A: HostArray, M: HostArray, K: HostArray, rate: HostArray) -> Spectrum:
    batch = A.shape[:-2]
    members = [spectrum_of(A[i], M[i], K[i], float(rate[i])) for i in np.ndindex(batch)]

    def stacked(dtype: Any, *parts: HostArray) -> HostArray:
        return np.stack(parts).astype(dtype).reshape(*batch, *parts[0].shape)

    return jax.tree.map(stacked, Spectrum(kind, kind, kind, np.bool_, np.bool_), *members)


def null(dtype: Any) -> float:
    """The size relative to the largest of its kind that counts as zero."""
    return float(np.finfo(dtype).eps) ** 0.7


def spectrum_of(A: HostArray, M: HostArray, K: HostArray, rate: float) -> Spectrum:
    """The spectrum of one matrix, on the host."""
    if not np.isfinite(A).all() or not A.size:
        nan = np.full(A.shape, np.nan, complex)
        return Spectrum(nan.diagonal(), nan, nan, *np.zeros((2, len(A)), bool))
    # Without damping the squares of the frequencies are eigenvalues of a symmetric problem, which
    # are real: round-off cannot cause growth or decay.
    if is_undamped(A, M, K, rate):
        values, right_vectors, left_vectors, zero = _vibrations(M, K, rate)
    else:
        units = _units(A, K.shape[1], rate)
        values, right_vectors, left_vectors, zero = _split(A * units[:, None] / units)
        right_vectors, left_vectors = right_vectors / units[:, None], left_vectors * units[:, None]
    size = np.abs(values).max(initial=0.0)
    apart = np.abs(values[:, None] - values[None, :]) + np.diag(np.full(len(values), np.inf))
    simple = ~zero & (apart.min(1, initial=np.inf) > SAME * size)
    # Zeros first, then by frequency, then by damping, then positive ones first.
    unit = 1e-9 * size or 1.0
    frequency, damping = np.round(np.abs(values.imag) / unit), np.round(values.real / unit)
    order = np.lexsort((-values.imag, damping, frequency, ~zero))
    return Spectrum(
        values[order], right_vectors[:, order], left_vectors[:, order], zero[order], simple[order]
    )


def _units(A: HostArray, k: int, rate: float) -> HostArray:
    """Factors of the state (x, u), shape (j,), by which the numbers in A become comparable rates.

    `rate` is the least that the k numbers x are multiplied by.
    """
    stiffness, along = (np.abs(x).max(initial=0.0) for x in (A[k:, :k], A[:k, k:]))
    fastest = np.sqrt(stiffness / along) if along else 0.0
    return np.where(np.arange(len(A)) < k, max(fastest, rate) or 1.0, 1.0).astype(A.dtype)


def is_undamped(A: HostArray, M: HostArray, K: HostArray, rate: float) -> bool:
    """Whether A is that of M x'' + K x = 0 with a symmetric K."""
    j = len(A)
    k = j // 2
    if K.shape != M.shape or j != 2 * len(M):
        return False
    units, small = _units(A, k, rate), null(A.dtype)
    scaled = A * units[:, None] / units
    size = np.abs(scaled).max()
    moves_alone = np.abs(A[:k, k:] - np.eye(k)).max() <= small
    free = max(np.abs(scaled[:k, :k]).max(), np.abs(scaled[k:, k:]).max()) <= small * size
    return bool(moves_alone and free and np.abs(K - K.T).max() <= small * np.abs(K).max())


def _vibrations(M: HostArray, K: HostArray, rate: float) -> tuple[HostArray, ...]:
    """The spectrum of M x'' + K x = 0, with lambda^2 minus an eigenvalue of the pair (K, M)."""
    from scipy.linalg import eigh  # slow to import, and seldom needed

    squares, X = eigh((K + K.T) / 2, (M + M.T) / 2)
    k = len(squares)
    zero = np.abs(squares) <= null(K.dtype) * max(np.abs(squares).max(), rate**2)
    root = np.where(zero, 0.0, np.sqrt(-squares.astype(complex)))
    values, zeros = np.concatenate([root, -root]), np.concatenate([zero, zero])
    twice, momenta = np.hstack([X, X]), np.hstack([M @ X, M @ X])
    right_vectors = np.vstack([twice, values * twice])
    right_vectors[:, k:][:, zero] = np.vstack([0 * X, X])[
        :, zero
    ]  # a zero has the chain (x, 0), (0, x)
    conjugate = np.where(zeros, 1.0, values.conj())
    left_vectors = np.vstack([momenta / 2, momenta / (2 * conjugate)]) * ~zeros
    return values, right_vectors, left_vectors, zeros


def _split(A: HostArray) -> tuple[HostArray, ...]:
    """The spectrum of a general A, with null spaces split off until the rest is regular."""
    j, size = len(A), float(np.linalg.norm(A, 2))
    N, Q, remainder = np.zeros((j, 0)), np.eye(j), A
    while remainder.size:
        _, sizes, V = np.linalg.svd(remainder)
        rank = int((sizes > null(A.dtype) * size).sum())
        if rank == len(remainder):
            break
        N, Q = np.concatenate([N, Q @ V[rank:].T], 1), Q @ V[:rank].T
        remainder = Q.T @ A @ Q
    count = N.shape[1]
    values = np.zeros(j, complex)
    right_vectors, left_vectors = np.zeros((j, j), complex), np.zeros((j, j), complex)
    right_vectors[:, :count] = N
    if remainder.size:
        eigenvalues, Y = np.linalg.eig(remainder)
        inner, across = N.T @ A @ N, N.T @ A @ Q
        values[count:] = eigenvalues
        for i, value in enumerate(eigenvalues):
            w = np.linalg.solve(value * np.eye(count) - inner, across @ Y[:, i])
            right_vectors[:, count + i] = Q @ Y[:, i] + N @ w
        left_vectors[:, count:] = Q @ np.linalg.pinv(Y).conj().T
    return values, right_vectors, left_vectors, np.arange(j) < count


class Modes(eqx.Module):
    """Motions z e^(lambda t) of a linearization; under `jax.vmap` with a leading batch axis.

    Eigenvalues, frequencies and damping ratios have derivatives where the eigenvalue is simple: NaN
    where it is repeated, and zero for those that are zero, which belong to symmetries. Shapes have
    derivatives, and eigenvalues second ones, where all eigenvalues are simple, else NaN.

    Attributes:
        eigenvalues: lambda [1/s], the zeros first, then by frequency, shape (j,).
        frequencies: |Im lambda| / 2 pi [Hz], shape (j,).
        damping: damping ratios -Re lambda / |lambda|, negative where a mode grows, NaN for zeros,
            shape (j,).
        shapes: deviations of the coordinates, the largest number scaled to 1, real for vibrations
            without damping, shape (n, j). For a mode that moves no coordinate (a velocity alone),
            those of the velocities.
        largest: index of the coordinate that moves most, metres and radians compared by their
            kinetic energy, shape (j,).
        states: the same in (x, u), shape (j, j).
        zero: whether an eigenvalue is zero, or so much smaller than the largest that round-off
            hides it (in float64 by 3e5), shape (j,).
        simple: whether it is neither zero nor repeated, shape (j,).
        coordinates: names of the coordinates.
    """

    eigenvalues: Complex[Array, " j"]
    frequencies: Float[Array, " j"]
    damping: Float[Array, " j"]
    shapes: Complex[Array, " n j"]
    largest: Int[Array, " j"]
    states: Complex[Array, " j j"]
    zero: Bool[Array, " j"]
    simple: Bool[Array, " j"]
    coordinates: tuple[str, ...] = eqx.field(static=True)

    @property
    def growth(self) -> Array:
        """The largest real part, positive where the motion is unstable [1/s]."""
        return jnp.max(self.eigenvalues.real, axis=-1, initial=-jnp.inf)

    def __repr__(self) -> str:
        values = self.eigenvalues
        if not isinstance(values, jax.Array | np.ndarray) or not is_known(values):
            return f"Modes(coordinates={self.coordinates}, without values)"
        if values.ndim != 1:
            return f"Modes: {values.shape[:-1]} sets of {values.shape[-1]} eigenvalues"
        return "\n".join(_card(self))


def modes(linearization: Linearization) -> Modes:
    """Eigenvalues, frequencies, damping ratios and shapes of a linearization.

    Undamped vibrations are solved as a symmetric eigenvalue problem; otherwise the zero
    eigenvalues of symmetries are split off first (`jaxmech.analysis.modes`). In a
    comoving frame, frequencies are those seen in it. Works under `jit`, `vmap` and
    derivatives; LAPACK runs on the host.

    Args:
        linearization: a result of `linearize`, or a batch of them.

    Returns:
        The `Modes`; NaN where the linearization is.

    Raises:
        TypeError: if the argument is not a `Linearization`.

    Example:
        >>> from jaxmech import models
        >>> from jaxmech.analysis.linearization import linearize
        >>> model = models.chain(links=2)
        >>> hanging = linearize(model.system, [0.0, -1.0, 0.0, -2.0], [0.0] * 4, model.params)
        >>> found = modes(hanging)
        >>> print(found.frequencies.round(6), found.shapes[:, 0].real.round(6) + 0.0)
        [0.381526 0.381526 0.921086 0.921086] [0.414214 0.       1.       0.      ]
    """
    require_kind("linearization", linearization, Linearization, "the result of `linearize`")
    is_concrete = is_known(linearization)
    spectrum_on_host = _spectrum(linearization) if is_concrete else None
    of_one: Callable[..., Modes] = (
        _modes if is_concrete else lambda lin, _: _modes(lin, _spectrum(lin))
    )
    for _ in range(linearization.space.A.ndim - 2):
        of_one = jax.vmap(of_one)
    return of_one(linearization, spectrum_on_host)


def _spectrum(lin: Linearization) -> Spectrum:
    return spectrum(lin.space.A, lin.reduced.M, lin.reduced.K, lin.rate)


@jax.jit
def _modes(lin: Linearization, spectrum: Spectrum) -> Modes:
    small = lin.reduced
    values, right_vectors = spectrum.eigenvalues, spectrum.right
    k = small.Z.shape[1]
    dq = small.Z @ right_vectors[:k]
    dv = small.T @ right_vectors[:k] + small.Y @ right_vectors[k:]
    scale, largest, only_velocity = _largest(dq, dv, jnp.diagonal(lin.full.M))
    size = jnp.abs(jax.lax.stop_gradient(values))
    nonzero = jnp.where(spectrum.zero | (size == 0), 1.0, jnp.abs(values))
    return Modes(
        eigenvalues=values,
        frequencies=jnp.abs(values.imag) / (2 * np.pi),
        damping=jnp.where(spectrum.zero, jnp.nan, -values.real / nonzero),
        shapes=jnp.where(only_velocity[None], dv, dq) / scale[None],
        largest=largest,
        states=right_vectors / scale[None],
        zero=spectrum.zero,
        simple=spectrum.simple,
        coordinates=lin.coordinates,
    )


def _largest(dq: Array, dv: Array, masses: Array) -> tuple[Array, Array, Array]:
    """The largest entry of each column, that of the velocities where no coordinate moves.

    The second result is the index of the coordinate that has most kinetic energy.
    """
    only_velocity = jnp.max(jnp.abs(dq), axis=0) <= 1e-9 * jnp.max(jnp.abs(dv), axis=0)
    entries = jnp.where(only_velocity[None], dv, dq)
    sizes = jnp.abs(entries) * (1 - 1e-9 * jnp.arange(len(dq)))[:, None]
    largest = jnp.take_along_axis(entries, jnp.argmax(sizes, axis=0)[None], axis=0)[0]
    energies = sizes * jnp.sqrt(jnp.maximum(jax.lax.stop_gradient(masses), 0.0))[:, None]
    massless = jnp.max(energies, axis=0) <= 1e-9 * jnp.max(sizes, axis=0)
    index = jnp.argmax(jnp.where(massless[None], sizes, energies), axis=0).astype(jnp.int32)
    return jnp.where(largest == 0, 1.0, largest), index, only_velocity


def _card(modes: Modes) -> list[str]:
    values, is_zero = np.asarray(modes.eigenvalues), np.asarray(modes.zero)
    names = modes.coordinates
    largest = [names[k] for k in np.asarray(modes.largest)]
    names_shortened = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    lines = [f"Modes: {len(values)} eigenvalues of coordinates {names_shortened}"]
    if not is_zero.all():
        lines.append("    eigenvalue [1/s]  frequency [Hz]  damping  largest in")
    for i, value in enumerate(values):
        if is_zero[i] or value.imag < 0:
            continue
        is_damped = abs(value.real) >= 1e-12 * abs(value)
        real, ratio = (value.real, float(modes.damping[i])) if is_damped else (0.0, 0.0)
        text = f"{real:.6g} + {value.imag:.6g}i" if value.imag else f"{real:.6g}"
        columns = f"{text:<20} {float(modes.frequencies[i]):>11.6g}"
        lines.append(f"  {columns} {ratio:>8.4g}     {largest[i]}")
    if is_zero.any():
        of_zeros = dict.fromkeys(name for name, zero in zip(largest, is_zero, strict=True) if zero)
        lines.append(f"  and {is_zero.sum()} zero: {', '.join(of_zeros)}")
    return lines
