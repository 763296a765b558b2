"""The fitted numbers of the parameters, with their names, and smooth transforms to their bounds.

A free number z becomes a parameter x within its bounds:

    no bounds           x = x0 + s z                        any number
    low                 x = low + (x0 - low) exp(z)         masses, inertias, friction
    high                x = high - (high - x0) exp(-z)
    low and high        x = low + (high - low) / (1 + exp(-y)),  y = y0 + z
    PhysicalInertia()   J = tr(S) 1 - S,  S = L L^T         the inertia of some body, 3 x 3

All begin at z = 0. A body has the matrix of inertia J if and only if S = tr(J)/2 1 - J, its second
moments of mass, is positive definite (Wensing, Kim and Slotine 2018); L is lower triangular with
the exponentials of free numbers on its diagonal.

The trust region moves the parameters themselves, in units of their start and up to their bounds:
these are the `straight` numbers.
"""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isinf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.system import Params, as_dtype
from jaxmech.utils.checks import require_finite
from jaxmech.utils.trees import entry_names, is_within, leaf_names

Entry = tuple[int, ...]
_NEAREST = 1e-100  # smallest distance from a bound, in units of the start


@dataclass(frozen=True)
class AbstractTransform(abc.ABC):
    """A map from z, zero at the start of the fit, to a leaf of the parameters."""

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """The fitted entries of the leaf, one for each number z."""
        return tuple(np.ndindex(*shape))

    @abc.abstractmethod
    def excludes(self, start: np.ndarray) -> str:
        """The reason why a fit cannot start here, or an empty text."""

    @abc.abstractmethod
    def value(self, z: Array, start: Array) -> Array:
        """The leaf for z, of the shape of its start."""

    def known(self, z: np.ndarray, start: Array) -> Array:
        """The same for known numbers."""
        return self.value(jnp.asarray(z), start)

    def limits(self, start: np.ndarray) -> np.ndarray:
        """The bounds of the `straight` numbers, shape (2, size of z); infinite if there is none."""
        count = len(self.entries(start.shape))
        return np.array([-inf, inf])[:, None] * np.ones(count)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their `straight` numbers by one."""
        return np.ones(len(self.entries(start.shape)))

    def straight(self, z: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Numbers for z with bounds of their own, of size 1 at the start of the fit."""
        return 1.0 + z

    def bent(self, x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers z for `straight` ones, and their derivatives by these."""
        return x - 1.0, np.ones(x.shape)


@dataclass(frozen=True)
class Interval(AbstractTransform):
    """A transform to an interval, possibly infinite; without bounds, a scaling by the start."""

    low: float = -inf
    high: float = inf

    def excludes(self, start: np.ndarray) -> str:
        """Report a start at or outside a bound."""
        if np.all((self.low < start) & (start < self.high)):
            return ""
        if isinf(self.high):
            return f"must be more than {self.low:g}"
        if isinf(self.low):
            return f"must be less than {self.high:g}"
        return f"must lie between {self.low:g} and {self.high:g}"

    def value(self, z: Array, start: Array) -> Array:
        """A straight line, the distance from the only bound as an exponential, or logistic."""
        low, high, z = self.low, self.high, z.reshape(start.shape)
        if isinf(low) and isinf(high):
            return start + jnp.where(start == 0, 1.0, jnp.abs(start)) * z
        if isinf(high):
            return low + (start - low) * jnp.exp(z)
        if isinf(low):
            return high - (high - start) * jnp.exp(-z)
        y = jnp.log((start - low) / (high - start)) + z
        return low + (high - low) / (1 + jnp.exp(-y))

    def limits(self, start: np.ndarray) -> np.ndarray:
        """Bounds of the parameters in units of their start."""
        return np.array([self.low, self.high])[:, None] / _size(start).ravel()

    def known(self, z: np.ndarray, start: Array) -> Array:
        """The same in NumPy, which compiles nothing."""
        x0 = np.asarray(start, float)
        values = self.units(x0) * self.straight(z, x0)
        return jnp.asarray(values.reshape(x0.shape).astype(start.dtype))

    def units(self, start: np.ndarray) -> np.ndarray:
        """The sizes of the parameters at the start of the fit."""
        return _size(start).ravel()

    def straight(self, z: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The parameters in units of their start; `value` in NumPy."""
        low, high, x0 = self.low, self.high, start.ravel()
        if isinf(low) and isinf(high):
            x = x0 + _size(x0) * z
        elif isinf(high):
            x = low + (x0 - low) * np.exp(z)
        elif isinf(low):
            x = high - (high - x0) * np.exp(-z)
        else:
            x = low + (high - low) / (1 + (high - x0) / (x0 - low) * np.exp(-z))
        return np.asarray(x / _size(x0))

    def bent(self, x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `straight`."""
        low, high, x0 = self.low, self.high, start.ravel()
        size = _size(x0)
        if isinf(low) and isinf(high):
            return x - x0 / size, np.ones(x.shape)
        # a distance of zero from a bound has no logarithm
        above, below = (np.maximum(d, _NEAREST * size) for d in (size * x - low, high - size * x))
        if isinf(high):
            return np.log(above / (x0 - low)), size / above
        if isinf(low):
            return -np.log(below / (high - x0)), size / below
        z = np.log(above / below) - np.log((x0 - low) / (high - x0))
        return z, size / above + size / below


def _size(start: np.ndarray) -> np.ndarray:
    return np.where(start == 0, 1.0, np.abs(start))


@dataclass(frozen=True)
class PhysicalInertia(AbstractTransform):
    """A matrix of inertia (3, 3) that some body has: definite, with the triangle inequalities.

    Example:
        >>> PhysicalInertia().excludes(np.diag([1.0, 1.0, 3.0]))
        'must be the inertia of a body: symmetric, no principal moment above the sum of the others'
    """

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """The entries of the lower triangle."""
        return tuple((int(i), int(j)) for i, j in zip(*np.tril_indices(3), strict=True))

    def excludes(self, start: np.ndarray) -> str:
        """A start that is not the inertia of any body."""
        if start.shape == (3, 3) and np.allclose(start, start.T):
            moments = np.trace(start) / 2 * np.eye(3) - start
            if np.linalg.eigvalsh(moments).min() > 0:
                return ""
        law = "symmetric, no principal moment above the sum of the others"
        return f"must be the inertia of a body: {law}"

    def value(self, z: Array, start: Array) -> Array:
        """The inertia from the second moments of mass, S = L L^T."""
        # z changes the Cholesky factor of the second moments of mass relative to its start
        first = _triangle(jnp.trace(start) / 2 * jnp.eye(3, dtype=start.dtype) - start)
        change = jnp.zeros_like(start).at[np.tril_indices(3, -1)].set(z[3:])
        L = first @ (change + jnp.diag(jnp.exp(z[:3])))
        S = L @ L.T
        return jnp.trace(S) * jnp.eye(3, dtype=start.dtype) - S


def _triangle(S: Array) -> Array:
    """The Cholesky factor of a 3 x 3 matrix, entry by entry: LAPACK would leave the lanes."""
    a = jnp.sqrt(S[0, 0])
    b, c = S[1, 0] / a, S[2, 0] / a
    d = jnp.sqrt(S[1, 1] - b * b)
    e = (S[2, 1] - b * c) / d
    f = jnp.sqrt(S[2, 2] - c * c - e * e)
    zero = jnp.zeros_like(a)
    return jnp.stack([jnp.stack([a, zero, zero]), jnp.stack([b, d, zero]), jnp.stack([c, e, f])])


def transform(name: str, bounds: Mapping[str, Any]) -> AbstractTransform:
    """The transform for the bounds of a parameter.

    Example:
        >>> transform("m", {"m": (0, None)})
        Interval(low=0.0, high=inf)
    """
    bound = bounds.get(name, Interval())
    if isinstance(bound, AbstractTransform):
        return bound
    try:
        low, high = bound
        interval = Interval(
            -inf if low is None else float(low), inf if high is None else float(high)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high) for {name!r}, None for no bound, or "
            f"PhysicalInertia(); but holds {bound!r}."
        ) from error
    if not interval.low < interval.high:  # also for NaN
        raise ValueError(f"Argument `bounds` must have low < high for {name!r}: {bound!r}.")
    return interval


class FreeLeaf(NamedTuple):
    """A leaf of the parameters that is fitted."""

    place: int  # its index among all leaves
    transform: AbstractTransform
    entries: tuple[Entry, ...]  # the fitted ones, one for each free number


@dataclass(frozen=True)
class ParameterLayout:
    """The positions of the free numbers z in the parameters; hashable, without their values."""

    structure: Any
    free: tuple[FreeLeaf, ...]
    names: tuple[str, ...]  # names of all fitted numbers, p in all

    @property
    def size(self) -> int:
        """The number p of free numbers."""
        return len(self.names)

    def params(self, z: Any, leaves: Sequence[Array]) -> Params:
        """The parameters for z (p,), where `leaves` are those at z = 0."""
        values, place = list(leaves), 0
        for k, transform, entries in self.free:
            values[k] = transform.value(z[place : place + len(entries)], leaves[k])
            place += len(entries)
        return jax.tree.unflatten(self.structure, values)

    def known(self, z: np.ndarray, leaves: Sequence[Array]) -> Params:
        """The parameters for known numbers z (p,)."""
        values, parts = list(leaves), self._split(z, leaves)
        for (k, _, _), (transform, part, _) in zip(self.free, parts, strict=True):
            values[k] = transform.known(part, leaves[k])
        return jax.tree.unflatten(self.structure, values)

    def limits(self, leaves: Sequence[Any]) -> np.ndarray:
        """The bounds of the `straight` numbers, (2, p)."""
        parts = [transform.limits(np.asarray(leaves[k])) for k, transform, _ in self.free]
        return np.concatenate([np.zeros((2, 0)), *parts], axis=1)

    def units(self, leaves: Sequence[Any]) -> np.ndarray:
        """The change of each parameter for a change of its `straight` number by one, (p,)."""
        parts = [transform.units(np.asarray(leaves[k], float)) for k, transform, _ in self.free]
        return np.concatenate([np.zeros(0), *parts])

    def straight(self, z: np.ndarray, leaves: Sequence[Any]) -> np.ndarray:
        """The parameters for z (p,), each in units of its start; with bounds, see `limits`."""
        parts = [leaf.straight(part, start) for leaf, part, start in self._split(z, leaves)]
        return np.concatenate([np.zeros(0), *parts])

    def bent(self, x: np.ndarray, leaves: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """z (p,) for the `straight` numbers, and its derivatives by them, (p,)."""
        pairs = [leaf.bent(part, start) for leaf, part, start in self._split(x, leaves)]
        zs, slopes = zip((np.zeros(0), np.zeros(0)), *pairs, strict=True)
        return np.concatenate(zs), np.concatenate(slopes)

    def _split(
        self, x: np.ndarray, leaves: Sequence[Any]
    ) -> Iterator[tuple[AbstractTransform, np.ndarray, np.ndarray]]:
        """Each transform with its part of x (p,) and its leaf."""
        place = 0
        for k, transform, entries in self.free:
            yield transform, x[place : place + len(entries)], np.asarray(leaves[k], float)
            place += len(entries)

    def numbers(self, z: Array, leaves: Sequence[Array]) -> Array:
        """The numbers that are fitted, (p,), in the order of their names."""
        leaves = jax.tree.leaves(self.params(z, leaves))
        return jnp.array([leaves[k][entry] for k, _, entries in self.free for entry in entries])


class Parameters(NamedTuple):
    """The parameters that a fit begins with, and their priors."""

    layout: ParameterLayout
    leaves: tuple[Array, ...]
    prior_mean: np.ndarray  # (p,)
    prior_sd: np.ndarray  # (p,), infinite without a prior


def parameters(
    params0: Params, *, free: Sequence[str] | None = None, bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
) -> Parameters:  # fmt: skip
    """Validate the parameters to fit.

    Example:
        >>> parameters({"m": 1.0, "arm": {"l": 2.0}}, free=["arm"]).layout.names
        ('arm.l',)
    """
    require_finite(params0=params0)
    bounds, prior = bounds or {}, prior or {}
    names = leaf_names(params0)
    leaves, structure = jax.tree.flatten(as_dtype(params0, float))
    numeric = [k for k, x in enumerate(leaves) if x.dtype != bool]
    chosen = [k for k in numeric if free is None or is_within(names[k], free)]
    able = [names[k] for k in numeric]
    branches = {name[:k] for name in able for k, letter in enumerate(name) if letter in ".["}
    _require_known("free", free or (), [*able, *sorted(branches)])
    if not chosen:
        raise ValueError(
            "Argument `free` must leave at least one number to fit, but leaves none; name one, or "
            "write numbers instead of truth values into `params0`."
        )
    # a start value of 10 is as good as 10.0; what is not fitted, such as a count, keeps its type
    leaves = [as_dtype(x.astype(float), float) if k in chosen else x for k, x in enumerate(leaves)]
    for argument, table in (("bounds", bounds), ("prior", prior)):
        _require_known(argument, table, [names[k] for k in chosen])
    fitted: list[FreeLeaf] = []
    fitted_names: list[str] = []
    priors: list[tuple[float, float]] = []
    for k in chosen:
        name, start, leaf_transform = names[k], np.asarray(leaves[k]), transform(names[k], bounds)
        if reason := leaf_transform.excludes(start):
            raise ValueError(
                f"Argument `params0` must begin inside the bounds, but {name} = {start} {reason}; "
                "move the start or the bound."
            )
        entries = leaf_transform.entries(start.shape)
        mean, sd = _prior(name, prior.get(name), start.shape, leaf_transform)
        priors += [(mean[entry], sd[entry]) for entry in entries]
        fitted_names += entry_names(name, entries)
        fitted.append(FreeLeaf(k, leaf_transform, entries))
    layout = ParameterLayout(structure, tuple(fitted), tuple(fitted_names))
    return Parameters(layout, tuple(leaves), *np.reshape(priors, (-1, 2)).T)


def _require_known(argument: str, names: Any, known: Sequence[str]) -> None:
    if isinstance(names, str):
        raise TypeError(f"Argument `{argument}` must be a sequence of names: write ({names!r},).")
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}."
            raise ValueError(
                f"Argument `{argument}` must name parameters that are fitted, but names {name!r}"
                f"{meant}"
            )


def _prior(
    name: str, prior: Any, shape: tuple[int, ...], leaf_transform: AbstractTransform
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a leaf, infinite without a prior."""
    if prior is None:
        return np.zeros(shape), np.full(shape, np.inf)
    try:
        mean, sd = (np.broadcast_to(np.asarray(x, float), shape) for x in prior)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `prior` must hold (mean, standard deviation) for {name!r}, numbers or "
            f"arrays of shape {shape}; but holds {prior!r}."
        ) from error
    if not (np.isfinite(mean).all() and (sd > 0).all()):
        raise ValueError(
            f"Argument `prior` must hold a finite mean and a positive standard deviation for "
            f"{name!r}, but holds {prior!r}."
        )
    if reason := leaf_transform.excludes(mean):
        raise ValueError(
            f"Argument `prior` must have its mean inside the bounds, but {name} {reason}, and its "
            f"prior has {mean}; move the prior or the bound."
        )
    return mean, sd
