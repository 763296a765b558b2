"""`SubjectInputs`: the recorded inputs of the system of a study."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmech.signal import Signal


@dataclass(frozen=True, eq=False)
class Process:
    """A random input, whose samples are a function of numbers that are drawn."""

    signal: Signal  # with the times of the samples
    shape: tuple[int, ...]  # of the numbers, a parameter with the name of the input
    rule: Any  # their distribution
    values: Callable[[Any], Any]  # of the samples

    def of(self, numbers: Any) -> Signal:
        """The input with these numbers."""
        values = self.values(jnp.asarray(numbers))
        drawn: Signal = eqx.tree_at(lambda signal: signal.values, self.signal, values)
        return drawn


@dataclass(frozen=True, eq=False)
class SubjectInputs:
    """Recorded inputs, which take the places of parameters."""

    # by name; where an input has a number, a batch with a row for each file
    signals: Mapping[str, Signal] = field(default_factory=dict)
    # the parameters that hold the number of the file, by input
    numbers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by input
    digests: Mapping[str, str] = field(default_factory=dict)  # of samples, by input and file
    processes: Mapping[str, Process] = field(default_factory=dict)  # the random ones
    # what was converted to SI units, by input
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def flags(self, parameter: str) -> dict[str, Any]:
        """What the values of a number mean (CF conventions, section 3.5); else nothing."""
        inputs = (name for name, number in self.numbers.items() if number == parameter)
        names = self.files.get(next(inputs, ""), ())
        meanings = " ".join(name.replace(" ", "_") for name in names)
        values = list(map(float, range(len(names))))
        return {"flag_values": values, "flag_meanings": meanings} if names else {}

    @property
    def ends(self) -> int:
        """The number of samples at which a step ends, of all inputs of a trajectory."""
        return sum(
            signal.values.shape[name in self.numbers]
            for name, signal in self.signals.items()
            if signal.interpolation != "cubic"
        )

    @property
    def parameters(self) -> dict[str, np.ndarray | None]:
        """The parameters that inputs add, with what stands in the place of drawn numbers."""
        numbers = {name: np.zeros(x.shape) for name, x in self.processes.items()}
        return {**dict.fromkeys(self.numbers.values()), **numbers}

    def of(self, parameters: Mapping[str, Any]) -> dict[str, Signal]:
        """The inputs of one trajectory with these parameters."""
        return {name: self._row(name, parameters) for name in self.signals}

    def _row(self, name: str, parameters: Mapping[str, Any]) -> Signal:
        signal = self.signals[name]
        if name in self.processes:
            return self.processes[name].of(parameters[name])
        if name not in self.numbers:
            return signal
        return signal.of_row(parameters[self.numbers[name]])
