"""`Until`: when a study has answered its question."""

from dataclasses import dataclass, field

from jaxmech.config.errors import refuse
from jaxmech.utils.field_docs import doc


@dataclass(frozen=True, kw_only=True)
class Until:
    """Stop when the interval of a statistic is short enough.

    It is judged after each block, in order, so a study stops at the same block however it is
    computed. A study that stops by its own results covers the truth a little less often than the
    confidence says; a few dozen hits of a rare event make the difference small.
    """

    quantity: str = field(metadata=doc("name of a statistic: moments, or a probability"))
    half_width: float = field(metadata=doc("half of the width of its interval"))
    confidence: float = field(default=0.95, metadata=doc("confidence of the interval"))
    at_least: int = field(default=1000, metadata=doc("trajectories that are computed in any case"))

    def __post_init__(self) -> None:
        if not self.half_width > 0:
            raise refuse("half_width", f"must be above 0, but is {self.half_width}")
        if not 0 < self.confidence < 1:
            raise refuse("confidence", f"must be between 0 and 1, but is {self.confidence}")
        if self.at_least < 1:
            raise refuse("at_least", f"must be at least 1, but is {self.at_least}")
