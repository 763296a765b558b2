"""`AbstractSteps`: the base of all step size policies."""

import abc
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.integrate.methods.runge_kutta import AbstractMethod
from jaxmech.utils.checks import as_numbers, is_known
from jaxmech.utils.jax_internals import Tracer
from jaxmech.utils.text import setting


@dataclass(frozen=True, repr=False)
class AbstractSteps(abc.ABC):
    """The step size policy of a run.

    Args:
        max_step: longest step [s]; by default there is no limit.
        times: times [s] at which a step ends, shape (K,), such as those of kinks, jumps and pulses
            of a force; there the functions of the system are evaluated on the side on which each
            step lies. They may depend on traced parameters, and are differentiated. "saves" means
            all save times, if these include the samples of all inputs.
    """

    max_step: float | Any = setting(None, "longest step [s]", kw_only=True)
    times: tuple[float, ...] | Any = setting(
        (),
        "times at which a step ends [s], such as kinks, jumps and pulses of a force",
        kw_only=True,
    )

    def __post_init__(self) -> None:
        _require_max_step(self.max_step)
        object.__setattr__(self, "times", _as_step_times(self.times))

    def __repr__(self) -> str:
        # `max_step` and `times` are shown only where they are set.
        ordered = sorted(fields(self), key=lambda f: bool(f.kw_only))
        values = (
            f"{f.name}={getattr(self, f.name)!r}"
            for f in ordered
            if getattr(self, f.name) is not f.default and getattr(self, f.name) is not None
        )
        return f"{type(self).__name__}({', '.join(values)})"

    @property
    @abc.abstractmethod
    def default_method(self) -> AbstractMethod:
        """The method where a caller leaves it out."""

    def require(self, method: AbstractMethod) -> None:
        """Raise a ValueError unless the policy suits the method."""
        return  # fixed steps suit all

    def step_times(self, dtype: Any) -> Array | None:
        """The times at which steps end, (K,), or None."""
        if self.end_at_saves or not np.size(self.times):
            return None
        # By numpy, which compiles no program for the conversion of numbers.
        is_tuple = isinstance(self.times, tuple)
        return jnp.asarray(np.asarray(self.times, dtype) if is_tuple else self.times, dtype)

    @property
    def end_at_saves(self) -> bool:
        """Whether the samples of inputs are save times."""
        return isinstance(self.times, str)

    def without_times(self) -> "AbstractSteps":
        """The same policy without times at which steps end."""
        return replace(self, times=())


def _require_max_step(value: Any) -> None:
    if value is None or isinstance(value, Tracer):
        return
    is_number = isinstance(value, int | float | np.number) or np.ndim(value) == 0
    if isinstance(value, bool) or not (is_number and float(value) > 0 and isfinite(value)):
        raise ValueError(
            f"Argument `max_step` must be a positive time, but is {value!r}; leave it out for "
            "steps of any length."
        )


def _as_step_times(value: Any) -> Any:
    """The times as a tuple of numbers, or as an array (K,) if they are traced."""
    if isinstance(value, tuple) and all(type(x) is float and isfinite(x) for x in value):
        return value
    if isinstance(value, str):
        if value != "saves":
            raise ValueError(f'Argument `times` must hold times or be "saves", but is {value!r}.')
        return value
    leaves = jax.tree.leaves(value)
    if not is_known(leaves):
        is_sequence = isinstance(value, tuple | list)
        return jnp.stack(list(map(jnp.asarray, value))) if is_sequence else jnp.asarray(value)
    times = np.asarray(as_numbers("times", value if np.size(value) else np.zeros(0), half=True))
    if times.ndim != 1 or not np.isfinite(times).all():
        raise ValueError(
            "Argument `times` must be a sequence of finite times at which a step ends, but is "
            f"{value!r}; write (1.0,) for a single one."
        )
    return tuple(times.astype(float).tolist())
