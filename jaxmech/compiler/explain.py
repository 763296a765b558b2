"""`Explanation`: which parts of a function were compiled for a batch, and why not the others."""

from dataclasses import dataclass, field

from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import Loop
from jaxmech.compiler.platforms import likely_platform


@dataclass(frozen=True)
class Part:
    """A loop or a function considered for compilation.

    Attributes:
        what: "function", "loop of n iterations", or "while loop".
        requested: operations on scalars in it.
        kept: operations left after folding, sharing and elimination; 0 under plain `vmap`.
        reason: the reason why it runs under plain `vmap`; empty where it runs as native code.
        how: the form in which it runs.
    """

    what: str
    requested: int
    kept: int
    reason: str
    how: str = "as lanes"


@dataclass(frozen=True)
class Explanation:
    """An explanation of how a function runs over a batch, which prints itself.

    Attributes:
        parts: every loop and function considered.
    """

    parts: list[Part] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(_line(part) for part in self.parts) or "no operation depends on the batch"


def part(what: str, kernel: Kernel) -> Part:
    """The part of an explanation for a kernel."""
    reader = kernel.reader
    requested = reader.graph.requested + _requested(reader.loops)
    how = "as a GPU kernel" if likely_platform() == "cuda" else "as lanes"
    return Part(what, requested, kernel.operations, "", how)


def _requested(loops: list[Loop]) -> int:
    return sum(loop.body.requested + _requested(loop.inner) for loop in loops)


def _line(part: Part) -> str:
    if part.reason:
        return f"{part.what}: plain vmap, because of {part.reason}"
    return f"{part.what}: {part.kept} of {part.requested} operations on scalars, {part.how}"
