"""`Shooting`: recordings cut into pieces that begin anew."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shooting:
    """Multiple shooting (Bock 1983): each recording in pieces, each with a beginning of its own.

    What a chaotic motion does after some seconds says nothing about its parameters that a computer
    could follow; over short pieces it says it plainly. That the end of a piece is the beginning of
    the next is a condition like the measurements.

    Args:
        length: of a piece [s]; about the time in which a deviation grows tenfold.
        continuity: standard deviation of the jump in every coordinate and velocity from one piece
            to the next, a soft condition; None for none at all: the jumps vanish in the solution
            (augmented Lagrangian, Nocedal and Wright 2006, section 17.3).

    Raises:
        ValueError: a number is not positive.

    Example:
        >>> Shooting(0.5)
        Shooting(length=0.5, continuity=None)
    """

    length: float
    continuity: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("continuity", self.continuity)):
            if value is not None and not value > 0:
                raise ValueError(f"Argument `{name}` must be positive, but is {value}.")
