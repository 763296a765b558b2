"""`Custom`: a statistic defined by the user, in a Python file or as an object."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np

from jaxmech.config import InFile
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Sample, State, StatisticResult
from jaxmech.utils.text import doc


class Reduction(NamedTuple):
    """Three functions of a statistic; states are any trees of arrays of fixed shapes.

    Attributes:
        init: the state of no trajectory, from a `Sample`, of which only the shapes count.
        update: the state with the trajectories of a `Sample` added.
        merge: function of two states that returns the state of all their trajectories.
        result: function that returns a dictionary of results from the final state; by default the
            state.

    Example:
        The largest absolute value of the trajectories that did not fail:

        >>> import jax.numpy as jnp
        >>> def update(state, sample):
        ...     size = jnp.where(sample.counts, jnp.abs(sample.values["x"]), 0.0)
        ...     return jnp.maximum(state, size.max())
        >>> largest = Reduction(
        ...     init=lambda sample: jnp.zeros(()),
        ...     update=update,
        ...     merge=jnp.maximum,
        ...     result=lambda state: {"largest": state},
        ... )
        >>> x = jnp.array([1.0, -3.0, 2.0])
        >>> sample = Sample({"x": x}, jnp.ones(3), jnp.full(3, True), jnp.arange(3))
        >>> print(largest.update(largest.init(sample), sample))
        3.0
    """

    init: Callable[[Sample], Any]
    update: Callable[[Any, Sample], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], StatisticResult] | None = None


@dataclass(frozen=True)
class Custom(AbstractStatistic):
    """A statistic defined by the functions of a `Reduction`.

    In a configuration file it is named as "path/file.py:name", relative to the folder of the
    configuration.

    Example:
        The sum of squares of a quantity:

        >>> import jax.numpy as jnp
        >>> squares = Reduction(
        ...     init=lambda sample: jnp.zeros(()),
        ...     update=lambda state, sample: state + (sample.weighted("x")[0] ** 2).sum(),
        ...     merge=jnp.add,
        ...     result=lambda state: {"sum": state},
        ... )
        >>> statistic = Custom(of=("x",), functions=squares)
        >>> x = jnp.array([1.0, 2.0, 6.0])
        >>> sample = Sample({"x": x}, jnp.ones(3), jnp.full(3, True), jnp.arange(3))
        >>> print(statistic.result(statistic.update(statistic.init(sample), sample))["sum"])
        41.0
    """

    of: tuple[str, ...] = field(metadata=doc("names of the quantities that it is given"))
    functions: Annotated[str | Reduction, InFile(str)] = field(
        metadata=doc('"path/file.py:name" of a `Reduction`')
    )

    @property
    def _own(self) -> Reduction:
        if not isinstance(self.functions, Reduction):
            raise TypeError(f"Argument `functions` must be a Reduction, but is {self.functions!r}.")
        return self.functions

    def init(self, sample: Sample) -> State:
        """Call the user's `init`."""
        return {"state": self._own.init(sample)}

    def update(self, state: State, sample: Sample) -> State:
        """Call the user's `update`."""
        return {"state": self._own.update(state["state"], sample)}

    def merge(self, first: State, second: State) -> State:
        """Call the user's `merge`."""
        return {"state": self._own.merge(first["state"], second["state"])}

    def result(self, state: State) -> StatisticResult:
        """Call the user's `result`, or return the leaves of the state."""
        inner = jax.tree.map(np.asarray, state["state"])
        if self._own.result is not None:
            return dict(self._own.result(inner))
        if isinstance(inner, dict):
            return dict(inner)
        return {str(k): leaf for k, leaf in enumerate(jax.tree.leaves(inner))}
