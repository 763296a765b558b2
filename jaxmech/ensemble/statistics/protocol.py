"""The interface of a statistic: a state that is updated with trajectories, and merged with another.

    of_sample(sample)       the state of the trajectories of a sample
    merge(first, second)    of the trajectories of both, those of `first` before those of `second`
    result(state)           the named results, on the host
    init(sample)            the state of no trajectory at all
    update(state, sample)   with the trajectories of a sample

All but `result` are pure JAX functions of arrays of fixed shapes; the last two follow from the
first two, unless a statistic has its own. States are merged in the order of the trajectories, so
that a result has the same bits however the work was divided.
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxmech.config import InFile
from jaxmech.config.errors import out_of_range, refuse, refuse_all
from jaxmech.utils.text import doc

State = dict[str, Any]
StatisticResult = dict[str, Any]


class Sample(NamedTuple):
    """Some trajectories of a study, B of them, for a statistic.

    Attributes:
        values: the requested quantities by name, shape (B, ...).
        good: False for failed trajectories and padding, shape (B,).
        real: False for padding, shape (B,).
        number: index of the trajectory in the study, shape (B,).
    """

    values: Mapping[str, Array]
    good: Bool[Array, " B"]
    real: Bool[Array, " B"]
    number: Int[Array, " B"]

    def floats(self, name: str) -> Array:
        """A quantity as floating-point numbers, truth values too."""
        value = self.values[name]
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)

    def counted(self, name: str) -> tuple[Array, Array]:
        """A quantity, zero where it is not finite or does not count, and one where it does."""
        value = self.floats(name)
        counts = jnp.isfinite(value) & self.good.reshape(-1, *(1,) * (value.ndim - 1))
        return jnp.where(counts, value, 0), counts.astype(value.dtype)


class AbstractStatistic(abc.ABC):
    """A statistic of a study, whose fields are the keys of its table in a configuration."""

    of: str | tuple[str, ...]
    in_unit: ClassVar[tuple[str, ...]] = ()  # results that have the unit of the quantity

    def __post_init__(self) -> None:
        kind, of = get_type_hints(type(self))["of"], getattr(self, "of", ())
        if kind is str and not isinstance(of, str):
            raise refuse("of", f"must be the name of one quantity, such as 'q', but is {of!r}")
        if kind is not str and isinstance(of, str):
            raise refuse("of", f"must be a tuple of names, such as ({of!r},), but is {of!r}")
        refuse_all(out_of_range(self))

    @property
    def quantities(self) -> tuple[str, ...]:
        """The quantities that the key `of` names."""
        return (self.of,) if isinstance(self.of, str) else self.of

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities that it is computed from: by default those of the key `of`."""
        return self.quantities

    def of_sample(self, sample: Sample) -> State:
        """The state of the trajectories of a sample; failed ones and padding do not count."""
        raise NotImplementedError

    def init(self, sample: Sample) -> State:
        """The state of no trajectory; only shapes and types of the sample count."""
        return self.of_sample(jax.tree.map(lambda x: jnp.zeros_like(x[:1]), sample))

    def update(self, state: State, sample: Sample) -> State:
        """The state with the trajectories of a sample added."""
        return self.merge(state, self.of_sample(sample))

    def merge(self, first: State, second: State) -> State:
        """The state of all trajectories of two states: by default sums."""
        return {key: first[key] + second[key] for key in first}

    @abc.abstractmethod
    def result(self, state: State) -> StatisticResult:
        """The result, arrays and numbers by name, from a state of numpy arrays."""


class Reduction(NamedTuple):
    """Three functions of a statistic; states are any trees of arrays of fixed shapes.

    Attributes:
        init: the state of no trajectory, from a `Sample`, of which only the shapes count.
        update: the state with the trajectories of a `Sample` added.
        merge: function of two states that returns the state of all their trajectories.
        result: function that returns a dictionary of results from the final state; by default the
            state.
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
    """

    of: tuple[str, ...] = field(metadata=doc("names of the quantities that it is given"))
    functions: Annotated[str | Reduction, InFile(str)] = field(
        metadata=doc('"path/file.py:name" of a `Reduction`')
    )

    @property
    def _reduction(self) -> Reduction:
        if not isinstance(self.functions, Reduction):
            raise TypeError(f"Argument `functions` must be a Reduction, but is {self.functions!r}.")
        return self.functions

    def init(self, sample: Sample) -> State:
        """Call the user's `init`."""
        return {"state": self._reduction.init(sample)}

    def update(self, state: State, sample: Sample) -> State:
        """Call the user's `update`."""
        return {"state": self._reduction.update(state["state"], sample)}

    def merge(self, first: State, second: State) -> State:
        """Call the user's `merge`."""
        return {"state": self._reduction.merge(first["state"], second["state"])}

    def result(self, state: State) -> StatisticResult:
        """Call the user's `result`, or return the leaves of the state."""
        inner = jax.tree.map(np.asarray, state["state"])
        if self._reduction.result is not None:
            return dict(self._reduction.result(inner))
        if isinstance(inner, dict):
            return dict(inner)
        return {str(k): leaf for k, leaf in enumerate(jax.tree.leaves(inner))}
