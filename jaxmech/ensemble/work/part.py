"""`BlockRange`: some of the blocks of a study, as for one job of an array of jobs."""

import re
from dataclasses import dataclass

from jaxmech.config.errors import InputError


@dataclass(frozen=True)
class BlockRange:
    """The blocks from `first` up to, but not including, `last`.

    Attributes:
        first: the first block.
        last: where the next part begins; None for the end of the study.
    """

    first: int
    last: int | None

    @classmethod
    def parsed(cls, text: str) -> "BlockRange":
        """A part from a text such as "0:100", "100:" or "7".

        Example:
            >>> BlockRange.parsed("0:100"), BlockRange.parsed("7")
            (BlockRange(first=0, last=100), BlockRange(first=7, last=8))
        """
        found = re.fullmatch(r"(\d+)(?::(\d*))?", text.strip())
        if not found:
            raise ValueError(f"must be of the form FIRST:LAST, such as 0:100, but is {text}")
        first, last = int(found[1]), found[2]
        part = cls(first, first + 1 if last is None else int(last) if last else None)
        if part.last is not None and part.last <= first:
            raise ValueError(f"must have a first block before the last, but is {text}")
        return part

    def of(self, count: int) -> range:
        """Its blocks in a study of so many; the last part of an array may be shorter."""
        if self.first >= count:
            raise InputError(f"--blocks {self} must lie within the blocks of this study, 0:{count}")
        return range(self.first, count if self.last is None else min(self.last, count))

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.last is None else self.last}"
