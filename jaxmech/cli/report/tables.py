"""The tables of the page about a run, from what is stored in its folder."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

import numpy as np

from jaxmech.config import python_files, stored_environment
from jaxmech.ensemble import (
    BlockMark,
    Results,
    array_of,
    failed,
    read_mark,
    rows_of_coordinates,
)
from jaxmech.status import Status, succeeded

MOST_FAILURES = 100
_WIDE = 38  # characters from which a table takes the whole width, that of a card
_GAP = 2  # characters between columns
_WORD = 14  # characters from which a word may be broken
_SMALL = 0.85  # size of the letters of an interval
_MOST_DECIMALS = 6  # smaller numbers have an exponent


class EstimateCell(NamedTuple):
    """A number with the limits of its interval."""

    value: float
    low: float
    high: float

    @property
    def texts(self) -> tuple[str, str, str]:
        """Value and limits, with as many decimals as show two digits of the interval's length.

        Example:
            >>> EstimateCell(0.0154999, 0.0119039, 0.0198268).texts
            ('0.0155', '0.0119', '0.0198')
        """
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
        head = self.head or [""] * max(map(len, self.rows), default=0)
        columns = zip(head, *self.rows, strict=True)
        return sum(_GAP + max(map(_width, column)) for column in columns) > _WIDE


def _width(cell: object) -> int:
    """The least width of a cell in characters: those of a number, or the longest word of a text."""
    match cell:
        case EstimateCell():
            value, low, high = cell.texts
            return max(len(value), round(_SMALL * len(f"{low} to {high}")))
        case CommandCell():
            return _GAP  # it is broken anywhere
        case str():
            return min(max(map(len, cell.split()), default=0), _WORD)
    return len(number_text(cell))


@dataclass(frozen=True)
class Failures:
    """The failed trajectories of a run."""

    count: int  # of all
    table: PageTable  # of the first ones


def number_text(value: object) -> str:
    """Format a number; a dash if it is unknown.

    Example:
        >>> number_text(12345), number_text(0.123456789), number_text(None)
        ('12,345', '0.123457', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if np.isfinite(value) else "–"


def lead(results: Results, summary: dict[str, Any]) -> str:
    """The sentence about the run below its name."""
    sentence = f"{summary['done']:,} of {summary['size']:,} trajectories, "
    failures = failed(summary)
    sentence += f"{failures:,} failed" if failures else "none failed"
    if len(results.blocks) < results.count and not results.summary:
        sentence += "; the run is not finished"
    return sentence + "."


def audit_tables(summary: dict[str, Any]) -> list[PageTable]:
    """How members ended, and the worst values of the good ones."""
    ends = [(name, x["count"], x["message"]) for name, x in summary["status"].items()]
    worst = [(name.replace("_", " "), value) for name, value in summary["worst"].items()]
    worst.append(("smallest rank", summary["smallest_rank"]))
    if summary["too_coarse"]:
        worst.append(("trajectories with too large a step", summary["too_coarse"]))
    if summary.get("with_missed_events"):
        worst.append(("trajectories with missed events", summary["with_missed_events"]))
    return [
        PageTable(("status", "count", "meaning"), ends, "How trajectories ended"),
        PageTable(("", "largest"), worst, "The worst of the successful trajectories"),
    ]


def quantile_tables(summary: dict[str, Any]) -> list[PageTable]:
    """The quantiles of the coordinates at the last time, if any are known."""
    quantiles = summary["quantiles"]
    if not quantiles or summary["done"] <= failed(summary):
        return []
    head = ("coordinate", *(f"{100 * p:g} %" for p in quantiles["probabilities"]))
    rows = [(name, *numbers) for name, numbers in rows_of_coordinates(quantiles)]
    return [PageTable(head, rows, caption=f"Quantiles at t = {quantiles['times'][-1]:g} s")]


def failure_table(results: Results, summary: dict[str, Any]) -> Failures | None:
    """Each failed trajectory, with what was drawn for it and the command that replays it."""
    count = failed(summary)
    if not count:
        return None
    rows: list[tuple[Any, ...]]
    if results.has_trajectories:
        rows, names = _stored_failures(results)
    else:
        rows, names = [(int(index), "", "") for index in summary["failed"]], []
    run = quote(str(results.path))
    config = " --config CONFIG" if python_files(results.config, results.path) else ""
    lines = [
        (str(row[0]), *row[1:], CommandCell(f"jaxmech replay {run} {row[0]}{config}"))
        for row in rows
    ]
    head = ("trajectory", "status", "t [s]", *names, "to see it alone")
    return Failures(count, PageTable(head, lines))


def _stored_failures(results: Results) -> tuple[list[tuple[Any, ...]], list[str]]:
    bad = results.members[~np.asarray(succeeded(results.status))][:MOST_FAILURES]
    draws = [
        name
        for name in results.group
        if name.startswith(("start_", "coordinate_", "velocity_", "parameter_"))
        and array_of(results.group, name).shape == (results.size,)
    ]
    rows = []
    for index in bad.tolist():
        status = Status(int(_entry(results, "status", index)))
        values = [_entry(results, name, index) for name in ("t_failed", *draws)]
        rows.append((index, status.name, *values))
    return rows, draws


def _entry(results: Results, name: str, index: int) -> float:
    return float(results.rows(name, index))


def environment_table(results: Results) -> PageTable:
    """Versions and devices."""
    facts = stored_environment(results.path)
    texts = ((key, x if isinstance(x, str) else json.dumps(x)) for key, x in facts.items())
    return PageTable(("fact", "value"), [(key, value) for key, value in texts if value])


def processor_table(results: Results) -> PageTable | None:
    """The numbers of blocks by kind of processor, if there are several."""
    marks = (read_mark(results.path, block) for block in results.blocks)
    kinds = Counter(mark.processor for mark in marks if isinstance(mark, BlockMark))
    del kinds[""]
    return PageTable(("processor", "blocks"), list(kinds.items())) if len(kinds) > 1 else None


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
