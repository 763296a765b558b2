"""The fitted numbers of the parameters, with their names, their `transforms` and their priors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.problem.body_inertia import BodyInertia, BodyNames
from jaxmech.identify.problem.transforms import Bounds, Entry, transform
from jaxmech.system import Params
from jaxmech.utils.checks import require_finite
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import as_dtype, entry_names, is_within, leaf_names


class FreeLeaf(NamedTuple):
    """A leaf of the parameters that is fitted, or several that are fitted together."""

    indices: tuple[int, ...]  # indices among all leaves
    transform: Bounds | BodyInertia
    entries: tuple[Entry, ...]  # the fitted ones of `start`, one for each free number

    def start(self, leaves: Sequence[Any]) -> Any:
        """The leaf, or the numbers of all of them behind each other."""
        if len(self.indices) == 1:
            return leaves[self.indices[0]]
        numpy = np if all(isinstance(leaves[k], np.ndarray) for k in self.indices) else jnp
        return numpy.concatenate([leaves[k].reshape(-1) for k in self.indices])

    def written(self, value: Any, leaves: list[Any]) -> None:
        """Put a value of the shape of `start` into the leaves."""
        if len(self.indices) == 1:
            leaves[self.indices[0]] = value
            return
        first = 0
        for k in self.indices:
            part = value[first : first + leaves[k].size]
            leaves[k], first = part.reshape(leaves[k].shape), first + leaves[k].size


@dataclass(frozen=True)
class ParameterLayout:
    """The positions of the unknowns x in the parameters; hashable, without their values."""

    structure: Any
    free: tuple[FreeLeaf, ...]
    names: tuple[str, ...]  # names of all fitted numbers, p in all

    @property
    def size(self) -> int:
        """The number p of unknowns."""
        return len(self.names)

    def params(self, x: Any, leaves: Sequence[Array]) -> Params:
        """The parameters for x (p,), where `leaves` are those at the start."""
        values = list(leaves)
        for leaf, part in self._parts(x):
            leaf.written(leaf.transform.value(part, leaf.start(leaves)), values)
        return jax.tree.unflatten(self.structure, values)

    def _parts(self, x: Any) -> Iterator[tuple[FreeLeaf, Any]]:
        """Each leaf with its part of x (..., p)."""
        index = 0
        for leaf in self.free:
            yield leaf, x[..., index : index + len(leaf.entries)]
            index += len(leaf.entries)

    def first(self, leaves: Sequence[Any]) -> np.ndarray:
        """The unknowns at the start, (p,)."""
        return np.concatenate([x.transform.first(_known(x, leaves)) for x in self.free])

    def moved(self, x: Any, z: Any, leaves: Sequence[Any]) -> Any:
        """Unknowns (p,) moved by numbers z (..., p) without bounds, which they do not leave."""
        pairs = zip(self._parts(x), self._parts(z), strict=True)
        parts = [a.transform.moved(part, by, _known(a, leaves)) for (a, part), (_, by) in pairs]
        return z.__array_namespace__().concatenate(parts, axis=-1)

    def limits(self, leaves: Sequence[Any]) -> np.ndarray:
        """The bounds of the unknowns, (2, p)."""
        parts = [x.transform.limits(_known(x, leaves)) for x in self.free]
        return np.concatenate(parts, axis=1)

    def bounds(self, leaves: Sequence[Any]) -> np.ndarray:
        """The lower and upper bounds of the parameters themselves, (p, 2)."""
        return (self.limits(leaves) * self.units(leaves)).T

    def units(self, leaves: Sequence[Any]) -> np.ndarray:
        """The change of each parameter for a change of its unknown by one, (p,)."""
        return np.concatenate([x.transform.units(_known(x, leaves)) for x in self.free])

    def numbers(self, x: Array, leaves: Sequence[Array]) -> Array:
        """The numbers that are fitted, (p,), in the order of their names."""
        leaves = jax.tree.leaves(self.params(x, leaves))
        starts = [(leaf.start(leaves), leaf.entries) for leaf in self.free]
        return jnp.array([start[entry] for start, entries in starts for entry in entries])


def _known(leaf: FreeLeaf, leaves: Sequence[Any]) -> np.ndarray:
    return np.asarray(leaf.start(leaves), float)


class Parameters(NamedTuple):
    """The parameters that a fit begins with, and their priors."""

    layout: ParameterLayout
    leaves: tuple[Array, ...]
    prior_mean: np.ndarray  # (p,)
    prior_sd: np.ndarray  # (p,), infinite without a prior


def parameters(
    params0: Params, *, free: Sequence[str] | None = None, bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None, bodies: Mapping[str, BodyNames] | None = None,
    default_bounds: Mapping[str, Any] | None = None,
) -> Parameters:  # fmt: skip
    """Validate the parameters to fit; `free` may name some of the bodies of a mechanism."""
    bounds, prior = bounds or {}, prior or {}
    names = leaf_names(params0)
    leaves, structure = jax.tree.flatten(as_dtype(params0, float))
    require_finite(params0=params0)
    numeric = [k for k, x in enumerate(leaves) if x.dtype != bool]
    able = [names[k] for k in numeric]
    branches = {name[:k] for name in able for k, letter in enumerate(name) if letter in ".["}
    # what parameters and bodies are both called is the parameters
    others = {x: body for x, body in (bodies or {}).items() if x not in {*able, *branches}}
    _require_known("free", free or (), [*able, *sorted(branches), *others])
    together = _together({x: others[x].names() for x in free or () if x in others}, names)
    chosen = [k for k in numeric if free is None or is_within(names[k], free) or k in together]
    if not leaves:
        raise ValueError(
            "Argument `params0` must hold the initial values of the parameters, but holds none; a "
            "bare System has none of its own."
        )
    if not chosen:
        raise ValueError(
            "Argument `free` must leave at least one number to fit, but leaves none; name one, or "
            "write numbers instead of truth values into `params0`."
        )
    # a start value of 10 is as good as 10.0; what is not fitted, such as a count, keeps its type
    leaves = [as_dtype(x.astype(float), float) if k in chosen else x for k, x in enumerate(leaves)]
    for argument, table in (("bounds", bounds), ("prior", prior)):
        _require_known(argument, table, [names[k] for k in chosen])
    starts = [np.asarray(x) for x in leaves]
    fitted: list[FreeLeaf] = []
    for k in chosen:
        if k not in together:
            way = transform(names[k], {**(default_bounds or {}), **bounds})
            if reason := way.excludes(starts[k]):
                raise ValueError(
                    f"Argument `params0` must begin inside the bounds, but {names[k]} = "
                    f"{starts[k]} {reason}; move the start or the bound."
                )
            fitted.append(FreeLeaf((k,), way, way.entries(starts[k].shape)))
        elif k == min(together[k][1]):
            name, indices = together[k]
            for index in indices:
                if names[index] in bounds:
                    raise ValueError(
                        f"Argument `bounds` must not have {names[index]!r}, which is fitted with "
                        f"the other numbers of the body {name!r}; leave it out, or name single "
                        "parameters in `free` instead of the body."
                    )
            parts = [starts[index] for index in indices]
            points = sum(x.size for x in parts[1:-1])
            body = BodyInertia(others[name].dimension, points, parts[-1].shape)
            leaf = FreeLeaf(indices, body, body.entries(()))
            if reason := body.excludes(leaf.start(starts)):
                raise ValueError(
                    f"Argument `params0` must begin with the numbers of a body for {name!r}, but "
                    f"{reason}; correct the start."
                )
            fitted.append(leaf)
    fitted_names, priors = list[str](), list[np.ndarray]()
    for leaf in fitted:
        # Names, means and standard deviations of all entries of the leaves, behind each other.
        single, flat = len(leaf.indices) == 1, list[str]()
        tables = list[np.ndarray]()
        way = leaf.transform if isinstance(leaf.transform, Bounds) else Bounds()
        for k in leaf.indices:
            flat += entry_names(names[k], np.ndindex(starts[k].shape))
            pair = np.stack(_prior(names[k], prior.get(names[k]), starts[k].shape, way))
            tables.append(pair.reshape(2, -1))
        places = range(len(flat)) if single else [k for (k,) in leaf.entries]
        fitted_names += [flat[k] for k in places]
        priors += [np.concatenate(tables, axis=1)[:, k] for k in places]
    layout = ParameterLayout(structure, tuple(fitted), tuple(fitted_names))
    return Parameters(layout, tuple(leaves), *np.reshape(priors, (-1, 2)).T)


def _together(
    bodies: Mapping[str, tuple[str, ...]], names: Sequence[str]
) -> dict[int, tuple[str, tuple[int, ...]]]:
    """By the index of a leaf, the body that it is fitted with, and the indices of all of its own.

    A leaf that two bodies share cannot follow both.
    """
    together: dict[int, tuple[str, tuple[int, ...]]] = {}
    for body, wanted in bodies.items():
        _require_known("free", wanted, names)
        indices = tuple(names.index(name) for name in wanted)
        shared = [k for k in indices if k in together or indices.count(k) > 1]
        if shared:
            raise ValueError(
                f"Argument `free` names the body {body!r}, whose parameter {names[shared[0]]!r} "
                "has more than one place; give each number of a body a name of its own, or name "
                "single parameters in `free`."
            )
        together |= dict.fromkeys(indices, (body, indices))
    return together


def _require_known(argument: str, names: Any, known: Sequence[str]) -> None:
    if isinstance(names, str):
        raise TypeError(f"Argument `{argument}` must be a sequence of names: write ({names!r},).")
    for name in names:
        if name not in known:
            message = not_one_of(str(name), known, "a parameter that is fitted")
            raise ValueError(f"Argument `{argument}` must name parameters, but {name!r} {message}.")


def _prior(
    name: str, prior: Any, shape: tuple[int, ...], leaf_transform: Bounds
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
