"""`RunParams`: the parameters of a system within a run, with a span of time and switches.

They take the place of the user's where a run has times at which a step ends, or constraints that
are switched on and off. The functions of a system `in_run` expect them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.system import Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by

KEPT = 32  # systems


class RunParams(eqx.Module):
    """The parameters of a system in a part of a run."""

    params: Params  # the user's, with what controllers give out
    low: Float[Array, ""] | None = None  # earliest time at which functions are evaluated
    high: Float[Array, ""] | None = None  # latest time
    active: Any = None  # whether each constraint with a switch is on, (C,)
    # The directions of slips in space that are slow in a step, their rates, and when it begins.
    axes: tuple[Float[Array, "D 2"], Float[Array, "D 2"], Float[Array, ""]] | None = None

    def inside(self, t: Array) -> Array:
        """A time within the span, with the derivative of the given one."""
        if self.low is None:
            return t
        return t + jax.lax.stop_gradient(jnp.clip(t, self.low, self.high) - t)


def with_run(params: Params, **changes: Any) -> RunParams:
    """The parameters, those of the user or of a run, with another span or other switches."""
    return replace(params if isinstance(params, RunParams) else RunParams(params), **changes)


def plain(params: Params) -> Params:
    """The parameters that the functions of users expect."""
    return params.params if isinstance(params, RunParams) else params


def with_outputs(system: System, params: Params, memory: Array) -> Params:
    """The parameters, those of the user or of a run, with what controllers give out."""
    if isinstance(params, RunParams):
        return replace(params, params=system.with_outputs(params.params, memory))
    return system.with_outputs(params, memory)


def after_samples(
    system: System, memory: Array, q: Array, v: Array, t: Array, params: Params
) -> Array:
    """The memory after the controllers that are due."""
    t = jax.lax.stop_gradient(t)
    inner = params.inside(t) if isinstance(params, RunParams) else t
    new_memory: Array = system.sampling(memory, q, v, inner, plain(params), inner - t)
    return new_memory


@dataclass(frozen=True)
class _InRun:
    """A function of a system, of `RunParams`."""

    fn: Callable[..., Any]
    role: str

    def __call__(self, *args: Any) -> Any:
        *state, t, params = args
        with naming_missing(self.role, params.params):
            return self.fn(*state, params.inside(t), params.params)


@kept_by(KEPT)
def in_run(system: System) -> System:
    """The system whose functions take `RunParams`."""
    return system if isinstance(system.lagrangian, _InRun) else system.with_functions(_InRun)
