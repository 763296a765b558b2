"""A whole batch by XLA: every scalar a row, for processors that have no native code here."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler.backends.emission import Emitter
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.graph import Node
from jaxmech.compiler.ir.loops import Given, Saved, Value


def rows(kernel: Kernel, moving: dict[int, Array], fixed: dict[int, Array], size: int) -> list[Any]:
    """The results, (numbers, size) each, sequences (iterations, numbers, size).

    Args:
        kernel: what is computed for one trajectory.
        moving: arguments by number that differ between trajectories, the batch last likewise.
        fixed: arguments that all share.
        size: number of trajectories.
    """
    scalars: list[Array] = []
    sequences: dict[int, Array] = {}
    for k, aval in enumerate(kernel.avals):
        if k in kernel.sequences:
            flat = moving[k] if k in moving else fixed[k].reshape(aval.shape[0], -1, 1)
            sequences[k - kernel.sequences.start] = flat
        elif k in moving:
            scalars += list(moving[k])
        else:
            scalars += [jnp.broadcast_to(x, (size,)) for x in fixed[k].ravel()]

    def leaf(node: Node) -> Array:
        params: Any = node.params
        return scalars[params]

    def given(steps: Given) -> Array:
        return sequences[steps.number]

    emitter = Emitter(kernel.reader.graph, kernel.reader.loops, kernel.needs, leaf, given, size)
    emitter.run()
    return _results(emitter, kernel.outs, size)


def _results(emitter: Emitter, outs: Sequence[Value], size: int) -> list[Array]:
    results = []
    for out in outs:
        if isinstance(out, Saved):
            results.append(emitter.saved(out))
        else:
            assert isinstance(out, np.ndarray)
            found = [emitter.rows[int(i)] for i in out.ravel()]
            results.append(jnp.stack(found) if found else jnp.zeros((0, size)))
    return results
