"""`Explanation`: which parts of a function were compiled for a batch, and why not the others.

`NativeCodeWarning` says the latter where a program is compiled, and nobody asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import Loop, UnsupportedError
from jaxmech.compiler.platforms import likely_platform
from jaxmech.utils.caller import warn_caller

LONGEST = 30_000  # equations, for which XLA takes from ten seconds to minutes
_LONGEST_REASON = 200  # characters


class NativeCodeWarning(UserWarning):
    """A loop or a function is not compiled as native code, or not in pieces, and takes longer."""


@dataclass(frozen=True)
class Part:
    """A loop or a function considered for compilation.

    Attributes:
        name: "function", "loop of n iterations", or "while loop".
        requested: operations on scalars in it.
        operations: those left after folding, sharing and elimination; 0 under plain `vmap`.
        reason: the reason why it runs under plain `vmap`; empty where it runs as native code.
        how: the form in which it runs.
    """

    name: str
    requested: int
    operations: int
    reason: str
    how: str = "as lanes"


@dataclass(frozen=True)
class Explanation:
    """An explanation of how a function runs over a batch, which prints itself.

    The result of `explain`.

    Attributes:
        parts: every loop and function considered.
        counts: whether operations are counted, which takes time.
        left_to_xla: numbers of equations outside of native code.
    """

    parts: list[Part] = field(default_factory=list)
    counts: bool = True
    left_to_xla: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = []
        for part in self.parts:
            how = f"{part.operations} of {part.requested} operations on scalars, {part.how}"
            reason = f"plain vmap, because of {part.reason}" if part.reason else how
            lines.append(f"{part.name}: {reason}")
        return "\n".join(lines) or "no operation depends on the batch"

    def add(self, name: str, kernel: Kernel) -> None:
        """Add a part that runs as native code."""
        self.parts.append(part(name, kernel) if self.counts else Part(name, 0, 0, ""))

    def add_plain(self, name: str, reason: str) -> None:
        """Add a part that runs as plain `vmap`."""
        self.parts.append(Part(name, 0, 0, reason))


def part(name: str, kernel: Kernel) -> Part:
    """The part of an explanation for a kernel."""
    reader = kernel.reader
    requested = reader.graph.requested + _requested(reader.loops)
    how = "as a GPU kernel" if likely_platform() == "cuda" else "as lanes"
    return Part(name, requested, kernel.operations, "", how)


def reason_of(error: Exception) -> str:
    """Why a program is not compiled, in one line; any error is a reason."""
    if isinstance(error, UnsupportedError):
        return str(error)
    first, *_ = [*str(error).strip().splitlines(), ""]
    return f"an error of the compiler, {type(error).__name__}: {first}"[:_LONGEST_REASON]


def warn_of_plain(parts: Sequence[Part]) -> None:
    """Warn once of each reason for which a part runs as plain `vmap`."""
    for reason in dict.fromkeys(part.reason for part in parts if part.reason):
        # Without lengths of loops, so that the warning is the same for all programs of a call.
        is_whole = any(part.name == "function" for part in parts if part.reason == reason)
        warn_caller(_TEXT.format("function" if is_whole else "loop", reason), NativeCodeWarning)


def warn_of_long(explanation: Explanation) -> None:
    """Warn of a program of which XLA compiles so much that it can take minutes."""
    count = sum(explanation.left_to_xla)
    if count > LONGEST and not any(part.reason for part in explanation.parts):
        warn_caller(_LONG.format(round(count, 1 - len(str(count)))), NativeCodeWarning)


_LONG = (
    "XLA compiles about {:,} operations of this call, which are outside of native code, and can "
    "take minutes for it (its message `Very slow compile?` is about this). Call a smaller "
    "part of the function under `jax.jit`, write repeated parts as a loop (`jax.lax.scan`), or "
    "describe the mechanism in coordinates of joints; the result is the same, and the next call "
    "with these shapes does not wait."
)
_TEXT = (
    "A {} runs as plain `jax.vmap` instead of native code, which takes ten to a hundred times as "
    "long, and longer to compile, because of {}. Use other operations there (`docs/limits.md` "
    "lists what native code does not support, `jaxmech.compiler.explain` all parts of a function), "
    "or run it within `jaxmech.compiler.off()` to accept that."
)


def _requested(loops: list[Loop]) -> int:
    return sum(loop.body.requested + _requested(loop.inner) for loop in loops)
