"""`modes`: eigenvalues and mode shapes of a linearization."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmech.analysis.stability.linearization import Linearization
from jaxmech.analysis.stability.spectrum import Spectrum, spectrum
from jaxmech.utils.checks import is_known, require_kind


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
    eigenvalues of symmetries are split off first (`jaxmech.analysis.stability.spectrum`). In a
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
        >>> from jaxmech.analysis.stability.linearize import linearize
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
        real = 0.0 if abs(value.real) < 1e-12 * abs(value) else value.real
        text = f"{real:.6g} + {value.imag:.6g}i" if value.imag else f"{real:.6g}"
        columns = f"{text:<20} {float(modes.frequencies[i]):>11.6g}"
        lines.append(f"  {columns} {float(modes.damping[i]) + 0.0:>8.4g}     {largest[i]}")
    if is_zero.any():
        of_zeros = dict.fromkeys(name for name, zero in zip(largest, is_zero, strict=True) if zero)
        lines.append(f"  and {is_zero.sum()} zero: {', '.join(of_zeros)}")
    return lines
