"""A kernel over a batch: the place where another platform's native code would be chosen."""

from collections.abc import Sequence

from jaxtyping import Array

from jaxmech.compiler.backends.primitive import blocks
from jaxmech.compiler.frontend.build import Kernel


def over_batch(
    kernel: Kernel, batched: Sequence[bool], size: int, args: Sequence[Array]
) -> list[Array]:
    """The results for a batch of arguments, the flagged of which have its axis in front.

    Raises:
        UnsupportedError: an operation or a type for which there is no instruction.
    """
    shared = {k: x for k, x in enumerate(args) if not batched[k]}
    moving = {k: x for k, x in enumerate(args) if batched[k]}
    return blocks(kernel, moving, shared, size)
