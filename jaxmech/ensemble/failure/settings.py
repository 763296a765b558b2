"""`Failure`: what counts as the failure of a motion, and how its probability is computed."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from jaxmech.config.errors import out_of_range, refuse, refuse_all
from jaxmech.utils.text import doc, setting

Method = Literal[
    "auto", "form", "sorm", "importance", "directional", "line", "subset", "monte-carlo"
]
NEEDS_OPENTURNS = ("auto", "form", "sorm", "importance")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The failure of a motion: a quantity beyond a threshold, or an event.

    A quantity is a coordinate, a velocity, or an observed quantity of the study. It fails "ever"
    where its largest value (`above`) or its smallest one (`below`) at any time is at or beyond the
    threshold: at all steps, whatever times are saved, and between them near the extreme one. It
    fails at the "end" where its last value is. Of an observed quantity with `keep` the kept value
    is compared: with keep = "max" and `below`, the largest value of all times. An event fails where
    it occurs at least once, or its function is beyond the level at the start; the motion goes on as
    if it did nothing, so that there is a measure of how far it was from occurring.

    Example:
        >>> Failure(of="x", above=3.0).margin_sign
        -1
    """

    of: str = field(metadata=doc("a coordinate, a velocity, an observed quantity, or an event"))
    above: float | None = setting(None, "threshold, if large values are failures")
    below: float | None = setting(None, "threshold, if small values are failures")
    when: Literal["ever", "end"] = setting("ever", "at any time, or at the last one")
    unfinished: Literal["failure", "safe"] = setting(
        "failure",
        "what a trajectory counts as that cannot be computed to its end and has not failed before",
    )
    method: Method = setting("auto", "how the probability is computed")
    coefficient_of_variation: float = setting(
        0.05, "standard deviation of the estimate, relative to it, to be reached", between=(0, 1)
    )
    most: int = setting(200_000, "trajectories after which no more are begun", least=1000)
    level: int | None = setting(
        None, "trajectories of a level of subset simulation; by default as the precision requires",
        least=100,
    )  # fmt: skip
    confidence: float = setting(0.95, "confidence of the interval", between=(0, 1))

    def __post_init__(self) -> None:
        if self.above is not None and self.below is not None:
            raise refuse("above", "or `below` must be given, not both")
        for name in ("above", "below"):
            if not isfinite(getattr(self, name) or 0.0):
                raise refuse(name, f"must be finite, but is {getattr(self, name)}")
        refuse_all(out_of_range(self))

    @property
    def threshold(self) -> float | None:
        """The threshold; None for an event."""
        return self.below if self.above is None else self.above

    @property
    def margin_sign(self) -> int:
        """The sign with which the quantity enters the margin, which is at most 0 in a failure."""
        return 1 if self.above is None else -1
