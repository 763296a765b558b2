"""Which numbers of the parameters are fitted, what they are called, and how they are bounded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.problem.bounds import AbstractTransform, transform
from jaxmech.system import Params
from jaxmech.utils.checks import require_finite
from jaxmech.utils.trees import is_within, leaf_names, numbered

Entry = tuple[int, ...]


@dataclass(frozen=True)
class ParameterLayout:
    """Where the free numbers z lie in the parameters; hashable, the values are elsewhere.

    Attributes:
        structure: of the parameters.
        free: places of the free leaves.
        transforms: one for each of them.
        entries: for each of them, the places of its numbers that move.
        names: of all numbers that move, p in all.
    """

    structure: Any
    free: tuple[int, ...]
    transforms: tuple[AbstractTransform, ...]
    entries: tuple[tuple[Entry, ...], ...]
    names: tuple[str, ...]

    @property
    def size(self) -> int:
        """p, the number of free numbers."""
        return len(self.names)

    def params(self, z: Array, leaves: Sequence[Array]) -> Params:
        """The parameters for z (p,), where `leaves` are those of the start."""
        whole, place = list(leaves), 0
        for k, way, entries in zip(self.free, self.transforms, self.entries, strict=True):
            whole[k] = way.value(z[place : place + len(entries)], leaves[k])
            place += len(entries)
        return jax.tree.unflatten(self.structure, whole)

    def numbers(self, params: Params) -> Array:
        """The numbers that move, (p,), in the order of their names."""
        leaves = jax.tree.leaves(params)
        found = [
            leaves[k][entry]
            for k, entries in zip(self.free, self.entries, strict=True)
            for entry in entries
        ]
        return jnp.stack(found)


@dataclass(frozen=True, eq=False)
class Parameters:
    """The start of a fit.

    Attributes:
        layout: which numbers are free.
        leaves: all leaves of the parameters, arrays.
        prior_mean: of each free number, shape (p,).
        prior_sd: standard deviation likewise; infinite where nothing is known beforehand.
    """

    layout: ParameterLayout
    leaves: tuple[Array, ...]
    prior_mean: np.ndarray
    prior_sd: np.ndarray


def parameters(
    params0: Params,
    *,
    free: Sequence[str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
) -> Parameters:
    """Read what is to be fitted, and validate it.

    Args:
        params0: where the fit begins, a pytree.
        free: names of leaves, or of whole branches; all floating-point leaves by default.
        bounds: (low, high) or a transform, by the name of a leaf.
        prior: (mean, standard deviation), by the name of a leaf.

    Raises:
        ValueError: a name is unknown, nothing is free, a start is not finite or lies outside its
            bounds, or a prior has no positive standard deviation.

    Example:
        >>> found = parameters({"m": 1.0, "arm": {"l": 2.0}}, free=["arm"])
        >>> found.layout.names
        ('arm.l',)
    """
    require_finite(params0=params0)
    names = leaf_names(params0)
    values, structure = jax.tree.flatten(params0)
    dtype = jnp.result_type(float)
    leaves = tuple(
        jnp.asarray(leaf, dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)
        for leaf in values
    )
    floating = [k for k, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.floating)]
    chosen = [k for k in floating if free is None or is_within(names[k], free)]
    _require_known("free", free or (), _with_branches([names[k] for k in floating]))
    if not chosen:
        raise ValueError(
            "Argument `free` must leave at least one floating-point parameter to fit; write 1.0 "
            "instead of 1 for a parameter that is no count."
        )
    free_names = [names[k] for k in chosen]
    for argument, given in (("bounds", bounds), ("prior", prior)):
        _require_known(argument, given or (), free_names)
    ways = tuple(transform(names[k], bounds or {}) for k in chosen)
    for k, way in zip(chosen, ways, strict=True):
        if reason := way.excludes(np.asarray(leaves[k])):
            raise ValueError(
                f"Argument `params0` must begin inside the bounds, but {names[k]} = "
                f"{np.asarray(leaves[k])} {reason}; move the start or the bound."
            )
    entries = tuple(w.entries(leaves[k].shape) for k, w in zip(chosen, ways, strict=True))
    pairs = zip(free_names, entries, strict=True)
    numbers = tuple(number for name, places in pairs for number in numbered(name, places))
    layout = ParameterLayout(structure, tuple(chosen), ways, entries, numbers)
    means, sds = _prior(prior or {}, free_names, entries, leaves, chosen)
    for name, k, way in zip(free_names, chosen, ways, strict=True):
        _require_inside(name, (prior or {}).get(name), leaves[k].shape, way)
    return Parameters(layout, leaves, means, sds)


def _with_branches(names: Sequence[str]) -> list[str]:
    """The names, and those of the branches that they lie in."""
    branches = {name[:k] for name in names for k, letter in enumerate(name) if letter in ".["}
    return [*names, *sorted(branches)]


def _require_known(argument: str, given: Any, known: Sequence[str]) -> None:
    if isinstance(given, str):
        raise TypeError(f"Argument `{argument}` must be a sequence of names: write ({given!r},).")
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}."
            raise ValueError(
                f"Argument `{argument}` must name parameters that are fitted, but names {name!r}"
                f"{meant}"
            )


def _prior(
    prior: Mapping[str, Any],
    names: Sequence[str],
    entries: Sequence[Sequence[Entry]],
    leaves: Sequence[Array],
    chosen: Sequence[int],
) -> tuple[np.ndarray, np.ndarray]:
    means: list[float] = []
    sds: list[float] = []
    for name, places, k in zip(names, entries, chosen, strict=True):
        shape = leaves[k].shape
        mean, sd = _mean_and_sd(name, prior[name], shape) if name in prior else (0.0, np.inf)
        for values, kept in ((mean, means), (sd, sds)):
            whole = np.broadcast_to(values, shape)
            kept.extend(float(whole[place]) for place in places)
    return np.array(means), np.array(sds)


def _require_inside(name: str, given: Any, shape: tuple[int, ...], way: AbstractTransform) -> None:
    """Raise if the mean of a prior is where the bounds do not let the parameter go."""
    if given is None:
        return
    mean, _ = _mean_and_sd(name, given, shape)
    if reason := way.excludes(mean):
        raise ValueError(
            f"Argument `prior` must have its mean inside the bounds, but {name} {reason}, and its "
            f"prior has {mean}; move the prior or the bound."
        )


def _mean_and_sd(name: str, given: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    try:
        mean, sd = (np.broadcast_to(np.asarray(x, float), shape) for x in given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `prior` must hold (mean, standard deviation) for {name!r}, numbers or "
            f"arrays of shape {shape}; but holds {given!r}."
        ) from error
    if not (np.isfinite(mean).all() and (sd > 0).all()):
        raise ValueError(
            f"Argument `prior` must hold a finite mean and a positive standard deviation for "
            f"{name!r}, but holds {given!r}."
        )
    return mean, sd
