"""The fitted numbers of the parameters, with their names and bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.problem.bounds import AbstractTransform, transform
from jaxmech.system import Params
from jaxmech.utils.checks import require_finite
from jaxmech.utils.trees import entry_names, is_within, leaf_names

Entry = tuple[int, ...]


@dataclass(frozen=True)
class ParameterLayout:
    """The positions of the free numbers z in the parameters; hashable, without their values."""

    structure: Any
    free: tuple[int, ...]  # indices of the free leaves
    transforms: tuple[AbstractTransform, ...]  # one for each free leaf
    entries: tuple[tuple[Entry, ...], ...]  # the fitted entries of each free leaf
    names: tuple[str, ...]  # names of all fitted numbers, p in all

    @property
    def size(self) -> int:
        """The number p of free numbers."""
        return len(self.names)

    def params(self, z: Array, leaves: Sequence[Array]) -> Params:
        """The parameters for z (p,), where `leaves` are those at z = 0."""
        whole, place = list(leaves), 0
        for k, way, entries in zip(self.free, self.transforms, self.entries, strict=True):
            whole[k] = way.value(z[place : place + len(entries)], leaves[k])
            place += len(entries)
        return jax.tree.unflatten(self.structure, whole)

    def numbers(self, params: Params) -> Array:
        """The numbers that are fitted, (p,), in the order of their names."""
        leaves = jax.tree.leaves(params)
        pairs = zip(self.free, self.entries, strict=True)
        return jnp.array([leaves[k][entry] for k, entries in pairs for entry in entries])


class Parameters(NamedTuple):
    """The parameters that a fit begins with, and their priors."""

    layout: ParameterLayout
    leaves: tuple[Array, ...]
    prior_mean: np.ndarray  # (p,)
    prior_sd: np.ndarray  # (p,), infinite without a prior

    @property
    def params(self) -> Params:
        """The parameters at z = 0."""
        return self.layout.params(jnp.zeros(self.layout.size), self.leaves)


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
    values, structure = jax.tree.flatten(params0)
    dtype = jnp.result_type(float)
    leaves = tuple(
        jnp.asarray(leaf, dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)
        for leaf in values
    )
    floating = [k for k, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.floating)]
    chosen = [k for k in floating if free is None or is_within(names[k], free)]
    able = [names[k] for k in floating]
    branches = {name[:k] for name in able for k, letter in enumerate(name) if letter in ".["}
    _require_known("free", free or (), [*able, *sorted(branches)])
    if not chosen:
        raise ValueError(
            "Argument `free` must leave at least one floating-point parameter to fit; write 1.0 "
            "instead of 1 for a parameter that is not a count."
        )
    free_names = [names[k] for k in chosen]
    for argument, given in (("bounds", bounds), ("prior", prior)):
        _require_known(argument, given, free_names)
    transforms = tuple(transform(name, bounds) for name in free_names)
    for k, way in zip(chosen, transforms, strict=True):
        if reason := way.excludes(np.asarray(leaves[k])):
            raise ValueError(
                f"Argument `params0` must begin inside the bounds, but {names[k]} = "
                f"{np.asarray(leaves[k])} {reason}; move the start or the bound."
            )
    entries = tuple(w.entries(leaves[k].shape) for k, w in zip(chosen, transforms, strict=True))
    found: list[str] = []
    priors: list[tuple[float, float]] = []
    for k, way, places in zip(chosen, transforms, entries, strict=True):
        found += entry_names(names[k], places)
        mean, sd = _prior(names[k], prior.get(names[k]), leaves[k].shape, way)
        priors += [(mean[place], sd[place]) for place in places]
    layout = ParameterLayout(structure, tuple(chosen), transforms, entries, tuple(found))
    return Parameters(layout, leaves, *np.reshape(priors, (-1, 2)).T)


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
    name: str, given: Any, shape: tuple[int, ...], way: AbstractTransform
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a leaf, infinite without a prior."""
    if given is None:
        return np.zeros(shape), np.full(shape, np.inf)
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
    if reason := way.excludes(mean):
        raise ValueError(
            f"Argument `prior` must have its mean inside the bounds, but {name} {reason}, and its "
            f"prior has {mean}; move the prior or the bound."
        )
    return mean, sd
