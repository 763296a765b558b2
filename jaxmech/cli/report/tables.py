"""The tables of a page, and what their cells hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_NARROW = 4  # columns of a table that fits beside others
_MOST_DECIMALS = 6  # smaller numbers have an exponent


class EstimateCell(NamedTuple):
    """A number with the limits of its interval."""

    value: float
    low: float
    high: float

    @property
    def texts(self) -> tuple[str, str, str]:
        """Value and limits, with as many decimals as show two digits of the interval's length."""
        length = self.high - self.low
        decimals = 1 - int(np.floor(np.log10(length))) if 0 < length < np.inf else -1
        if 0 <= decimals <= _MOST_DECIMALS:
            value, low, high = (f"{x:z,.{decimals}f}" for x in self)
        else:
            value, low, high = map(number_text, self)
        return value, low, high


class CommandCell(NamedTuple):
    """A command of the shell."""

    command: str


@dataclass(frozen=True)
class PageTable:
    """A table of the page; cells are texts, numbers, `EstimateCell`s or `CommandCell`s."""

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""  # of the section that holds it
    caption: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether its columns need the whole width of the page."""
        return len(self.head or (self.rows or [()])[0]) > _NARROW


@dataclass(frozen=True)
class Answer:
    """The results of one statistic."""

    name: str
    description: str  # kind and quantity, such as "moments of q at t = 2 s"
    tables: Sequence[PageTable]

    @property
    def is_wide(self) -> bool:
        """Whether its tables take the whole width of the page."""
        return any(table.is_wide for table in self.tables)


def number_text(value: object) -> str:
    """Format a number; a dash if it is unknown."""
    if value is None:
        return "–"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if np.isfinite(value) else "–"
