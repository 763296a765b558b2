"""`SubjectInputs`: the recorded inputs of the system of a study."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxmech.signal import Signal


@dataclass(frozen=True, eq=False)
class SubjectInputs:
    """Recorded inputs, which take the places of parameters."""

    # by name; where an input has a number, a batch with a row for each file
    signals: Mapping[str, Signal] = field(default_factory=dict)
    # the parameters that hold the number of the file, by input
    numbers: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by input
    digests: Mapping[str, str] = field(default_factory=dict)  # of samples, by input and file
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

    def of(self, parameters: Mapping[str, Any]) -> dict[str, Signal]:
        """The inputs of one trajectory with these parameters."""
        return {name: self._row(name, parameters) for name in self.signals}

    def _row(self, name: str, parameters: Mapping[str, Any]) -> Signal:
        signal = self.signals[name]
        if name not in self.numbers:
            return signal
        return signal.of_row(parameters[self.numbers[name]])
