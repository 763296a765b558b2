"""`Finding`: a problem or fact about a system, its severity, and a remedy."""

import textwrap
from dataclasses import dataclass
from enum import IntEnum
from functools import partial


class Severity(IntEnum):
    """The severity of a finding."""

    NOTE = 0  # good to know
    WARNING = 1  # costs accuracy, or will matter for other values
    SERIOUS = 2  # makes results wrong or impossible


@dataclass(frozen=True)
class Finding:
    """A problem or fact about a system.

    Attributes:
        severity: `NOTE`, `WARNING` or `SERIOUS`.
        what: the problem or fact, with the names of the constraints, coordinates or parameters.
        remedy: the suggested remedy.
    """

    severity: Severity
    what: str
    remedy: str

    def __str__(self) -> str:
        sentence = f"{self.severity.name.lower()}: {self.what}"
        remedy = textwrap.fill(self.remedy, 100, initial_indent="  -> ", subsequent_indent=" " * 5)
        return f"{textwrap.fill(sentence, 100, subsequent_indent='  ')}\n{remedy}"


note, warning, serious = (partial(Finding, severity) for severity in Severity)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Join names for a sentence, such as "'rod', 'loop' and 'wheel'"."""
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
