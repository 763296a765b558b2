"""A run with events and steps by a tolerance, as one JAX operation; its derivatives are refused."""

from collections.abc import Sequence
from typing import Any

import jax
from jaxtyping import Array

from jaxmech.compiler import AbstractRule, Arrays, Flags, bind, hoisted, operation_of
from jaxmech.integrate.adaptive.method import Tolerance
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.system import Params

_SEGMENT = 64  # moves, which nothing reads
_REFUSAL = (
    "Derivatives of a run with events need a method with fixed steps: give `method=RK4(...)`, or "
    "another one, in place of `Adaptive`."
)


def adaptive_event_trajectory(
    scheme: Scheme, watch: Watch, q0: Array, v0: Array, ts: Array, params: Params,
    tolerance: Tolerance,
) -> Trajectory:  # fmt: skip
    """The trajectory with its events."""

    def run(q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance) -> Trajectory:
        return adaptive_rollout(
            scheme, q0, v0, ts, params, tolerance, segment=_SEGMENT, watch=watch
        )[0]

    given = q0, v0, ts, params, tolerance
    with_traced, traced = hoisted(run, *given)
    leaves, structure = jax.tree.flatten((traced, *given))

    def flat(*leaves: Array) -> Trajectory:
        traced, *given = jax.tree.unflatten(structure, leaves)
        found: Trajectory = with_traced(traced, *given) if traced else run(*given)
        return found

    operation, outs = operation_of(flat, leaves, _NoRule)
    found: Trajectory = jax.tree.unflatten(outs, bind(operation, (), *leaves))
    return found


class _NoRule(AbstractRule):
    """The refusal of derivatives."""

    residuals = ()

    def __init__(self, outs: Any) -> None:
        trajectory = jax.tree.unflatten(outs, range(outs.num_leaves))
        found = trajectory.q, trajectory.v, trajectory.events.found
        self.smooth = tuple(jax.tree.leaves(found))

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Refused."""
        raise NotImplementedError(_REFUSAL)

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Refused."""
        raise NotImplementedError(_REFUSAL)
