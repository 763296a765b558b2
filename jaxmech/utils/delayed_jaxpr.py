"""`DelayedJaxpr`: a function that is traced when its operations are needed."""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

from jaxmech.utils.jax_internals import ClosedJaxpr, without_unused


class DelayedJaxpr:
    """A jaxpr whose shapes are known before it is traced.

    In reverse mode, JAX asks for the tangents of an operation only to transpose them; their
    program, a third of the time to trace a gradient, is then never needed.

    Args:
        in_avals: shapes and types of the arguments.
        out_avals: shapes and types of the results.
        effects: JAX's effects of the operations.
        trace: returns the jaxpr.
    """

    def __init__(
        self, in_avals: Sequence[Any], out_avals: Sequence[Any], effects: Collection[Any],
        trace: Callable[[], ClosedJaxpr],
    ) -> None:  # fmt: skip
        self.in_avals, self.out_avals = list(in_avals), list(out_avals)
        self.effects, self._trace = effects, trace

    @classmethod
    def of(cls, closed: ClosedJaxpr) -> "DelayedJaxpr":
        """A jaxpr that has been traced."""
        return cls(closed.in_avals, closed.out_avals, closed.effects, lambda: closed)

    @cached_property
    def closed(self) -> ClosedJaxpr:
        """The jaxpr."""
        return self._trace()

    def narrowed(self, used_outs: Sequence[bool]) -> "DelayedJaxpr":
        """The jaxpr of the used results."""
        outs = [x for x, is_used in zip(self.out_avals, used_outs, strict=True) if is_used]
        trace = lambda: without_unused(self.closed, used_outs)  # noqa: E731
        return DelayedJaxpr(self.in_avals, outs, self.effects, trace)
