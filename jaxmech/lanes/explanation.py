"""What became of a function over a batch, for people to read."""

from dataclasses import dataclass, field
from typing import Any

from jaxmech.lanes.kernel import Kernel
from jaxmech.lanes.loops import Loop
from jaxmech.lanes.needs import Needs


@dataclass(frozen=True)
class Part:
    """A loop or a function that was tried as lanes.

    Attributes:
        what: "function", or "loop of n iterations".
        requested: operations on scalars that it asks for.
        kept: operations that are left after folding, sharing and dropping; 0 where it fell back.
        reason: why it runs under plain `vmap`; empty where it runs as lanes.
    """

    what: str
    requested: int
    kept: int
    reason: str


@dataclass(frozen=True)
class Explanation:
    """How a function runs over a batch; prints itself.

    Attributes:
        parts: every loop and function that was tried.
    """

    parts: list[Part] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(_line(part) for part in self.parts) or "nothing runs over the batch"


def part(what: str, kernel: Kernel) -> Part:
    """What there is to say of a kernel."""
    reader = kernel.reader
    requested = reader.graph.requested + _requested(reader.loops)
    kept = _kept(reader.graph.nodes, reader.loops, kernel.needs)
    return Part(what, requested, kept, "")


def _requested(loops: list[Loop]) -> int:
    return sum(loop.body.requested + _requested(loop.inner) for loop in loops)


_LEAVES = {"const", "input", "carry", "element", "capture", "result"}


def _kept(nodes: list[Any], loops: list[Loop], needs: Needs) -> int:
    own = sum(nodes[i].op not in _LEAVES for i in needs.nodes)
    inner = [(loops[k], part.body) for k, part in needs.loops.items() if part.body is not None]
    return own + sum(_kept(loop.body.nodes, loop.inner, body) for loop, body in inner)


def _line(part: Part) -> str:
    if part.reason:
        return f"{part.what}: plain vmap, because of {part.reason}"
    return f"{part.what}: {part.kept} of {part.requested} operations on scalars, as lanes"
