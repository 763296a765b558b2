"""A run as one JAX operation, and the common derivative rules of all runs.

A run has fixed or adaptive steps, with events or without. Its derivatives go through
its steps again, from states that the forward run has kept.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import AbstractRule, Arrays, Flags, bind, hoisted, operation_of
from jaxmech.integrate.trajectory import Trajectory
from jaxmech.system import Params


class RolloutInputs(eqx.Module):
    """All inputs of a trajectory, or their tangents or cotangents; None where zero."""

    q0: Any  # (n,)
    v0: Any  # (n,)
    ts: Any  # save times (T,)
    params: Params
    tolerance: Any = None  # of adaptive steps, held fixed in derivatives
    times: Any = None  # at which a step ends (K,); with fixed steps, where they are saves, held
    memory: Any = None  # of controllers, (c,); c is zero without them
    traced: Sequence[Any] = ()  # values that the system and the events close over

    @property
    def shared(self) -> tuple[Params, Sequence[Any]]:
        """The inputs that all steps depend on."""
        return self.params, self.traced


class SmoothResults(eqx.Module):
    """The differentiable results of a run, or their tangents or cotangents."""

    q: Any  # at the save times, (T, n)
    v: Any  # at the save times, (T, n)
    memory: Any  # at the save times, (T, c)
    occurrences: Any  # rows of the events, (R, w)
    states: Any  # states that the derivatives need, for derivatives of derivatives


class RunRule(AbstractRule):
    """The rule of a run, whose inputs have this structure; `outs` are the shapes of its results."""

    takes_finite = True

    def __init__(self, run: Any, structure: Any, outs: Any) -> None:
        trajectory, residuals = jax.tree.unflatten(outs, range(outs.num_leaves))
        saves = trajectory.saves
        smooth = SmoothResults(
            saves.q, saves.v, saves.memory, trajectory.occurrences, residuals.smooth
        )
        self._run = run
        self.residuals = tuple(jax.tree.leaves(residuals))
        self.smooth = tuple(jax.tree.leaves(smooth))
        self._inputs = structure
        self._kept, self._smooth = map(jax.tree.structure, (residuals, smooth))

    def jvp(self, args: Arrays, residuals: Arrays, needed: Flags, tangents: Arrays) -> list[Array]:
        return self.pushed(args, residuals, needed, tangents, is_smooth=False)

    def pushed(
        self, args: Arrays, residuals: Arrays, needed: Flags, tangents: Arrays, *, is_smooth: bool
    ) -> list[Array]:
        """Tangents of the smooth results, NaN where a state is NaN."""
        (x, kept_data), next_tangents = self._trees(args, residuals), iter(tangents)
        padded = [next(next_tangents) if flag else None for flag in needed]
        changes = jax.tree.unflatten(self._inputs, padded)
        results = self._run.tangents(x, kept_data, changes, is_smooth)
        saves = results.q, results.v, results.memory
        q, v, memory = (jnp.where(kept_data.known[:, None], d, jnp.nan) for d in saves)
        return jax.tree.leaves(replace(results, q=q, v=v, memory=memory))

    def vjp(
        self, args: Arrays, residuals: Arrays, needed: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        x, kept_data = self._trees(args, residuals)
        flags: RolloutInputs = jax.tree.unflatten(self._inputs, needed)
        result_cotangents: SmoothResults = jax.tree.unflatten(self._smooth, cotangents)
        saves = result_cotangents.q, result_cotangents.v, result_cotangents.memory
        is_known = kept_data.known[:, None]
        q, v, memory = (ct if ct is None else jnp.where(is_known, ct, 0.0) for ct in saves)
        # Before the loops of the run, with which they would be compiled otherwise.
        unknown = [((ct != 0) & ~is_known).any() for ct in saves if ct is not None]
        depends_on_nan = jnp.stack([*unknown, jnp.asarray(False)]).any()
        # The barrier keeps XLA from evaluating it while it compiles, slowly, where a cotangent of
        # many events or saves is constant.
        differ = jax.lax.optimization_barrier([ct != 0 for ct in cotangents if ct is not None])
        nonzero = jnp.stack([x.any() for x in differ]).any()
        # After a failure the derivative is NaN if it depends on a saved NaN. If it does not, and
        # all cotangents are zero, it is 0 and not 0 times NaN.
        answer, is_found = jnp.where(depends_on_nan, jnp.nan, 0.0), nonzero & ~depends_on_nan
        input_cotangents = self._run.cotangents(
            x, kept_data, flags, replace(result_cotangents, q=q, v=v, memory=memory)
        )
        input_cotangents = jax.tree.map(
            lambda x: jnp.where(is_found, x, answer.astype(x.dtype)), input_cotangents
        )
        zero_tolerance = jax.tree.map(
            lambda x, flag: jnp.zeros_like(x) if flag else None, x.tolerance, flags.tolerance
        )
        return jax.tree.leaves(replace(input_cotangents, tolerance=zero_tolerance))

    def _trees(self, args: Arrays, residuals: Arrays) -> tuple[RolloutInputs, Any]:
        return jax.tree.unflatten(self._inputs, args), jax.tree.unflatten(self._kept, residuals)


@dataclass(frozen=True)
class AbstractRun(abc.ABC):
    """A run and its derivatives."""

    rule: ClassVar[type[RunRule]] = RunRule  # of its derivatives
    # From the inputs to the trajectory and the data for its derivatives: `known`, whether the state
    # was good at each save time (T,), `smooth`, states with derivatives, and more.
    run: Callable[[RolloutInputs], tuple[Trajectory, Any]]

    @abc.abstractmethod
    def tangents(
        self, x: RolloutInputs, residuals: Any, changes: RolloutInputs, is_smooth: bool
    ) -> SmoothResults:
        """Tangents of the results; those of unknown states do not matter.

        Those that are smooth come from loops of fixed length, which JAX can differentiate in
        reverse mode.
        """

    @abc.abstractmethod
    def cotangents(
        self, x: RolloutInputs, residuals: Any, needed: RolloutInputs, cotangents: SmoothResults
    ) -> RolloutInputs:
        """Cotangents of the wanted inputs; those of unknown states are zero, as is None."""

    def trajectory(self, x: RolloutInputs) -> Trajectory:
        """The run as one operation with its derivatives."""
        leaves, structure = jax.tree.flatten(x)

        def run(*leaves: Array) -> tuple[Trajectory, Any]:
            return self.run(jax.tree.unflatten(structure, leaves))

        differ = tuple(any(leaf is y for y in (x.q0, x.v0, x.memory)) for leaf in leaves)
        operation, outs = operation_of(run, leaves, partial(self.rule, self, structure), differ)
        return jax.tree.unflatten(outs, bind(operation, *leaves))[0]


Part = Callable[..., Any]


def with_traced(
    run: Callable[[RolloutInputs], Any], x: RolloutInputs, parts: Sequence[Part],
    examples: Sequence[tuple[Any, ...]],
) -> tuple[RolloutInputs, Callable[[RolloutInputs], Any], list[Part]]:  # fmt: skip
    """The inputs with the traced values that a run closes over; the run and its parts with those.

    A part is a function with the parameters as its last argument, in place of which it then takes
    `RolloutInputs.shared`; the examples are its other arguments. The first part closes over all
    that any of them does.
    """
    # They should be parameters, but a system may be made inside a differentiated function.
    if not hoisted(parts[0], *examples[0], x.params)[1]:
        # `jit` so that it is traced once, for a single trajectory and for a batch.
        own = [lambda *args, part=part: part(*args[:-1], args[-1][0]) for part in parts]
        return x, jax.jit(run), own
    hoisted_run, traced = hoisted(run, x)

    @jax.jit
    def run_inputs(x: RolloutInputs) -> Any:
        return hoisted_run(list(x.traced), replace(x, traced=()))

    def with_values(part: Part, example: tuple[Any, ...]) -> Part:
        hoisted_part, part_values = hoisted(part, *example, x.params)
        # The run has the same values, in an order of its own.
        indices = [next(k for k, y in enumerate(traced) if y is value) for value in part_values]
        return lambda *args: hoisted_part(
            [args[-1][1][k] for k in indices], *args[:-1], args[-1][0]
        )

    return replace(x, traced=traced), run_inputs, list(map(with_values, parts, examples))


def split_shared(x: RolloutInputs, changes: RolloutInputs) -> tuple[Any, Any]:
    """Split `shared` into differentiated inputs and the rest; the changes are tangents or flags."""
    is_needed = jax.tree.map(
        lambda t: t is not None and t is not False, changes.shared, is_leaf=lambda t: t is None
    )
    return eqx.partition(x.shared, is_needed)


def pulled_through(
    advance: Callable[[Any, Any], tuple[Any, Any]], pull: Callable[[Any, Any, Any], Any],
    start: Any, moves: Any, cotangents: Any, count: int | None = None,
) -> Any:  # fmt: skip
    """Pull cotangents back through moves, of which `moves` has the data along its first axis.

    `advance` leads from a state and a move to the next state and what `pull` needs to know; `pull`
    from the cotangents after a move, that and the move to those before. Without data of the moves,
    `count` is their number.
    """

    # By two loops and not by the derivative of one, which keeps all intermediate values; with
    # events native code cannot do that.
    def backward(cotangents: Any, before: Any) -> tuple[Any, None]:
        return pull(cotangents, *before), None

    _, states = jax.lax.scan(advance, start, moves, length=count)
    return jax.lax.scan(backward, cotangents, (states, moves), length=count, reverse=True)[0]


def of_parts(parts: Any, values: Any) -> Any:
    """The values of the parts that are not None, and None for the others."""
    return jax.tree.map(
        lambda x, value: x if x is None else value, parts, values, is_leaf=lambda x: x is None
    )
