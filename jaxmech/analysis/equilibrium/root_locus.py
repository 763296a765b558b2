"""`root_locus`: eigenvalues as functions of a parameter, and where a motion loses its stability."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from numpy.typing import NDArray

from jaxmech.analysis.equilibrium.result import Equilibrium
from jaxmech.analysis.stability.linearization import Linearization, is_negligible
from jaxmech.analysis.stability.modes import modes
from jaxmech.utils.checks import as_numbers, require_finite, require_function

Of = Callable[[Any], Linearization | Equilibrium]
Complexes = NDArray[np.complexfloating]
At = Callable[[float], Complexes]  # the eigenvalues at a value of the parameter
REAL = 1e-6  # relative to the largest eigenvalue: counts as no oscillation
AXIS = 1e-9  # relative to the largest eigenvalue: counts as on the imaginary axis
HALVINGS = 50  # bisections of an interval in which a branch leaves the axis


class Crossing(NamedTuple):
    """A crossing of the imaginary axis by a branch, or its departure from it without damping.

    Attributes:
        value: value of the parameter, to about 12 digits.
        frequency: frequency of the eigenvalue there [Hz]; zero where it is real.
        branch: index of the branch, the one with the positive frequency of a pair.
        rising: whether the real part increases, which is a loss of stability.
    """

    value: float
    frequency: float
    branch: int
    rising: bool


class RootLocus(eqx.Module):
    """Eigenvalues over a parameter, in branches.

    The result of `root_locus`.

    Attributes:
        values: values of the parameter, shape (T,).
        eigenvalues: [1/s], one branch in each column, shape (T, j).
        slopes: derivatives with respect to the parameter, NaN where repeated, shape (T, j).
        crossings: crossings of the imaginary axis and departures from it, by value.
        name: name of the parameter.
    """

    values: Float[Array, " T"]
    eigenvalues: Complex[Array, " T j"]
    slopes: Complex[Array, " T j"]
    crossings: tuple[Crossing, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def growth(self) -> Float[Array, " T"]:
        """The largest real part for each value of the parameter [1/s]."""
        return self.eigenvalues.real.max(axis=1)

    def __repr__(self) -> str:
        count, size = self.eigenvalues.shape
        low, high = float(self.values[0]), float(self.values[-1])
        lines = [f"RootLocus: {size} eigenvalues for {count} values of {self.name}, "]
        lines[0] += f"{low:g} to {high:g}"
        for x in self.crossings:
            word = "unstable" if x.rising else "stable"
            kind = f"at {x.frequency:.6g} Hz" if x.frequency else "without oscillation"
            lines.append(f"  {self.name} = {x.value:.9g}: a mode becomes {word} {kind}")
        return "\n".join(lines)


def root_locus(linearization_of: Of, values: Any, *, name: str = "parameter") -> RootLocus:
    """The eigenvalues of a family of linearizations, tracked from value to value.

    All values are computed as one batch. Branches are matched so that the sum of the distances to
    the eigenvalues extrapolated with their derivatives is least; crossings of the imaginary axis
    are located by root finding along the branch, and values at which an undamped mode leaves the
    axis by bisection. Two crossings between two values are not noticed. A host function.

    Args:
        linearization_of: returns the `Linearization` or the `Equilibrium` for a scalar value of the
            parameter; it runs under `jax.vmap`.
        values: values of the parameter in increasing order, shape (T,), T > 1.
        name: name of the parameter, for prints and pictures.

    Raises:
        TypeError: if `linearization_of` is not a function, or returns something else.
        ValueError: if the values do not increase, or for one of them the state is not steady or its
            matrices are not finite.

    Example:
        >>> import jaxmech as jm
        >>> def rotor(q, v, t, p):  # a shaft with damping within it, in the frame that turns at w
        ...     turning = p["w"] * (q[0] * v[1] - q[1] * v[0]) + p["w"] ** 2 * q @ q / 2
        ...     return v @ v / 2 + turning - 2 * q @ q
        >>> def loads(q, v, t, p):  # damping outside, d = 0.1, and inside, d = 0.2
        ...     return -0.3 * v - 0.1 * p["w"] * jnp.stack([-q[1], q[0]])
        >>> shaft = jm.System(rotor, force=loads, coordinates=("x", "y"))
        >>> def at(w):
        ...     return jm.analysis.linearize(shaft, jnp.zeros(2), jnp.zeros(2), {"w": w})
        >>> root_locus(at, jnp.linspace(1.0, 5.0, 9), name="w")
        RootLocus: 4 eigenvalues for 9 values of w, 1 to 5
          w = 3: a mode becomes unstable at 0.159155 Hz
    """
    require_function("linearization_of", linearization_of)
    values = as_numbers("values", values)
    require_finite(values=values)
    if values.ndim != 1 or len(values) < 2 or not np.all(np.diff(np.asarray(values)) > 0):
        raise ValueError(
            "Argument `values` must be at least two increasing numbers of shape (T,), but is "
            f"{np.asarray(values)}; sort them."
        )
    spectra = jax.jit(jax.vmap(lambda x: _with_slopes(linearization_of, x)))
    eigenvalues, slopes, missed, regular = (np.asarray(x) for x in spectra(1.0 * values))
    _require_steady(name, np.asarray(values), missed, regular)
    eigenvalues, slopes = _tracked(np.asarray(values), eigenvalues, slopes)
    eigenvalues_at = jax.jit(lambda x: modes(_linear(linearization_of(x))).eigenvalues)
    crossings = _crossings(np.asarray(values), eigenvalues, lambda x: np.asarray(eigenvalues_at(x)))
    return RootLocus(values, jnp.asarray(eigenvalues), jnp.asarray(slopes), crossings, name)


def _linear(linearization: Any) -> Linearization:
    if isinstance(linearization, Equilibrium):
        return linearization.linearization
    if not isinstance(linearization, Linearization):
        raise TypeError(
            "Argument `linearization_of` must return a Linearization or an Equilibrium, but "
            f"returned a {type(linearization).__name__}; call `linearize` or `equilibrium` in it."
        )
    return linearization


def _with_slopes(linearization_of: Of, x: Array) -> tuple[Array, ...]:
    """The eigenvalues with their derivatives, the unsteadiness, and whether ranks are right."""

    def values(x: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        lin = _linear(linearization_of(x))
        eigenvalues = modes(lin).eigenvalues
        return (eigenvalues.real, eigenvalues.imag), (lin.unsteadiness, lin.regular)

    eigenvalues, slopes, aux = jax.jvp(values, (x,), (jnp.ones_like(x),), has_aux=True)
    return jax.lax.complex(*eigenvalues), jax.lax.complex(*slopes), *aux


def _require_steady(name: str, values: Any, missed: Any, regular: Any) -> None:
    wrong = ~(is_negligible(missed) & regular)
    if wrong.any():
        k = int(np.argmax(wrong))
        why = "the state is not steady" if regular[k] else "the constraints have another rank"
        raise ValueError(
            f"Argument `linearization_of` must linearize about a steady motion, but at {name} = "
            f"{values[k]:g} {why}; find the state with `equilibrium`."
        )


def _tracked(x: Any, eigenvalues: Complexes, slopes: Complexes) -> tuple[Complexes, Complexes]:
    """Permute eigenvalues and slopes within each row so that columns are branches."""
    eigenvalues, slopes = eigenvalues.copy(), slopes.copy()
    size = np.abs(eigenvalues).max(initial=0.0)
    for k in range(1, len(eigenvalues)):
        step = x[k] - x[k - 1]
        prediction, return_step = (np.nan_to_num(slopes[i]) * step / 2 for i in (k - 1, k))
        ahead, back = eigenvalues[k - 1] + prediction, eigenvalues[k] - return_step
        plain = np.abs(eigenvalues[k - 1][:, None] - eigenvalues[k][None, :])
        cost = np.abs(ahead[:, None] - back[None, :]) + 1e-3 * plain
        # zeros of symmetries stay zero, even if others cross them
        cost += 10 * size * ((eigenvalues[k - 1] == 0)[:, None] != (eigenvalues[k] == 0)[None, :])
        from scipy.optimize import linear_sum_assignment  # slow to import, and seldom needed

        places = linear_sum_assignment(cost)[1]
        eigenvalues[k], slopes[k] = eigenvalues[k][places], slopes[k][places]
    return eigenvalues, slopes


def _crossings(x: Any, eigenvalues: Complexes, eigenvalues_at: At) -> tuple[Crossing, ...]:
    size = float(np.abs(eigenvalues).max(initial=0.0)) or 1.0
    zeros = int((eigenvalues == 0).sum(axis=1).min())
    crossings: list[Crossing] = []
    for branch in range(eigenvalues.shape[1]):
        branch_values = eigenvalues[:, branch]
        # On the imaginary axis, 0; a single such value lies between those of a crossing.
        side = np.where(np.abs(branch_values.real) > AXIS * size, np.sign(branch_values.real), 0)
        single = (side[1:-1] == 0) & (side[:-2] * side[2:] != 0)
        indices = np.flatnonzero(np.r_[True, ~single, True])
        for ends in pairwise(indices):
            low, high = side[list(ends)]
            # Without damping modes are on the axis until they become unstable.
            if max(low, high) <= 0 or low == high:
                continue
            pair = x[list(ends)], branch_values[list(ends)], lambda x: eigenvalues_at(x)[zeros:]
            value, eigenvalue = _refined(*pair) if low * high else _left(*pair, AXIS * size)
            if eigenvalue.imag < -REAL * size:  # its conjugate is on another branch
                continue
            hertz = eigenvalue.imag / (2 * np.pi) if eigenvalue.imag > REAL * size else 0.0
            crossings.append(Crossing(value, hertz, branch, bool(low < high)))
    return tuple(sorted(crossings))


def _refined(ends: Any, branch_values: Any, eigenvalues_at: At) -> tuple[float, complex]:
    def near(x: float) -> complex:
        part = (x - ends[0]) / (ends[1] - ends[0])
        values = eigenvalues_at(x)
        expected = branch_values[0] + part * (branch_values[1] - branch_values[0])
        return complex(values[np.argmin(np.abs(values - expected))])

    from scipy.optimize import brentq  # slow to import, and seldom needed

    value = float(brentq(lambda x: near(x).real, ends[0], ends[1], xtol=1e-13, rtol=1e-13))
    return value, near(value)


def _left(ends: Any, branch_values: Any, eigenvalues_at: At, axis: float) -> tuple[float, complex]:
    """Locate where a branch leaves the imaginary axis, on which it is at one of the ends."""
    on_axis, off_axis = (0, 1) if abs(branch_values[0].real) <= axis else (1, 0)
    calm, unstable, eigenvalue = ends[on_axis], ends[off_axis], branch_values[off_axis]
    for _ in range(HALVINGS):
        middle = (calm + unstable) / 2
        values = eigenvalues_at(middle)
        nearest = complex(values[np.argmin(np.abs(values - eigenvalue))])
        if nearest.real > axis:
            unstable, eigenvalue = middle, nearest
        else:
            calm = middle
    return float(unstable), eigenvalue
