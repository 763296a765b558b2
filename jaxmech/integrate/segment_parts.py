"""What the derivatives of runs have in common, with fixed or adaptive steps, with events or not."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import AbstractRule, Arrays, Flags
from jaxmech.integrate.rollout import segments
from jaxmech.system import Params


class AbstractTreeRule(AbstractRule):
    """A rule for an operation whose arguments, and what it keeps for derivatives, are pytrees.

    Args:
        program: what the derivatives run.
        structure: of the arguments.
        kept: the numbers of the results that are kept, as a pytree.
        smooth: the numbers of the differentiable results.
    """

    def __init__(self, program: Any, structure: Any, kept: Any, smooth: Any) -> None:
        self.program, self.structure = program, structure
        self.residuals = tuple(jax.tree.leaves(kept))
        self.smooth = tuple(jax.tree.leaves(smooth))
        self._kept_structure = jax.tree.structure(kept)

    def trees(self, args: Arrays, residuals: Arrays) -> tuple[Any, Any]:
        """The arguments, and what was kept."""
        return (
            jax.tree.unflatten(self.structure, args),
            jax.tree.unflatten(self._kept_structure, residuals),
        )

    def changes(self, wanted: Flags, tangents: Arrays) -> Any:
        """The tangents in the structure of the arguments, None for those that are zero."""
        given = iter(tangents)
        whole = [next(given) if flag else None for flag in wanted]
        return jax.tree.unflatten(self.structure, whole)

    def flags(self, wanted: Flags) -> Any:
        """Which arguments are differentiated by, in their structure."""
        return jax.tree.unflatten(self.structure, wanted)


def zeros_of(values: Any, flags: Any) -> list[Array]:
    """Zero cotangents of those leaves that are wanted, for values that are held."""
    pairs = zip(jax.tree.leaves(values), jax.tree.leaves(flags), strict=True)
    return [jnp.zeros_like(x) for x, flag in pairs if flag]


class RolloutInputs(eqx.Module):
    """All that a trajectory depends on; `traced` are the values that its system closes over."""

    q0: Any
    v0: Any
    ts: Any
    params: Params
    traced: list[Any]


class SegmentEnds(eqx.Module):
    """States at the ends of the segments, and their tangents or cotangents: shapes (S, n)."""

    q: Array
    v: Array


def segment_starts(x: RolloutInputs, ends: SegmentEnds) -> list[Array]:
    """q and v at the starts of the segments, shapes (S, n)."""
    pairs = (x.q0, ends.q), (x.v0, ends.v)
    return [jnp.concatenate([first[None], rest[:-1]]) for first, rest in pairs]


def segment_times(substeps: int, steps: int) -> Callable[[Array], tuple[Array, Array]]:
    """The save time before each segment and its step size, as a function of the save times."""

    def of(ts: Array) -> tuple[Array, Array]:
        own = segments(ts, substeps, steps)
        return own.t, own.h

    return of


def plus(wrt_start: Array, saves: Array | None) -> Array:
    """Cotangents of the state at the start, with those of the first save; None is zero."""
    return wrt_start if saves is None else wrt_start + saves[0]


def at_ends(cotangent: Array | None, count: int) -> Array | None:
    """Cotangents of the saved states (T, n) at the ends of the segments, without the last save."""
    if cotangent is None:
        return None
    saves = len(cotangent) - 1
    if saves < 2:
        return None
    zeros = jnp.zeros_like(cotangent[:1])
    inner = jnp.concatenate([cotangent[1:-1], zeros])[:, None]
    before = jnp.zeros((saves, count // saves - 1, cotangent.shape[1]), cotangent.dtype)
    return jnp.concatenate([before, inner], axis=1).reshape(count, -1)
