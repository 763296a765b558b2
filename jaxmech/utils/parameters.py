"""Which parameters a function reads, and which differ from those of a run."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import is_known
from jaxmech.utils.jax_internals import used_arguments
from jaxmech.utils.text import close_name
from jaxmech.utils.trees import leaf_names, named_leaves

Digests = dict[str, Any]  # uint32, by the name of the parameter
_WEIGHT = 2654435761  # odd, so that a change of a single word changes the sum


class ParameterWarning(UserWarning):
    """Parameters that are probably not the intended ones."""


def unread(fn: Callable[[Any], Any], params: Any) -> tuple[str, ...]:
    """The names of the parameters on which the results of fn(params) do not depend."""
    # Read from the jaxpr, so that values do not matter; a parameter whose effect cancels is used.
    leaves, structure = jax.tree.flatten(params)
    jaxpr = jax.make_jaxpr(lambda leaves: fn(jax.tree.unflatten(structure, leaves)))(leaves).jaxpr
    needed_inputs = used_arguments(jaxpr)
    pairs = zip(leaf_names(params), needed_inputs, strict=True)
    return tuple(name for name, is_used in pairs if not is_used)


def digests_of(params: Any) -> Digests:
    """A number for each leaf of some parameters, which differs for other values.

    Four bytes each, so that a batch of solutions can hold them. Known values are not traced.
    """
    return {name: _digest(leaf) for name, leaf in named_leaves(params)}


def _digest(x: Any) -> Any:
    has_value = is_known(x)
    if jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    x = np.asarray(x) if has_value else jax.lax.stop_gradient(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        words: Any
        if has_value:
            words = np.where(x == 0, x.dtype.type(0), x).reshape(-1).view(np.uint32)
        else:  # zeros alike, whatever their sign
            words = jnp.where(x == 0, 0.0, x)
            words = jax.lax.bitcast_convert_type(words, jnp.uint32).reshape(-1)
    else:
        words = x.astype(np.uint32).reshape(-1)
    odd = (2 * np.arange(words.size, dtype=np.uint64) + 1) * _WEIGHT
    weights = (odd & 0xFFFFFFFF).astype(np.uint32)
    return (words * weights).sum(dtype=np.uint32)


def differing(run: Digests, reference: Digests) -> tuple[str, ...]:
    """The parameters whose values differ from those of a run, or of one member of a batch."""
    common = [name for name in run if name in reference]
    return tuple(n for n in common if (np.ravel(run[n]) != np.ravel(reference[n])).any())


def warn_of_unread(params: Any, read: Callable[[Any], Any], declared: Collection[str]) -> None:
    """Warn of parameters of which read(params) reads nothing, and that are not declared."""
    if not isinstance(params, Mapping):
        return
    undeclared = [name for name in params if name not in declared]
    idle = unread(read, params) if undeclared else ()
    for name in undeclared:
        if all(leaf in idle for leaf in leaf_names({name: params[name]})):
            near = close_name(str(name), declared)
            remedy = f"if {near!r} is meant, correct the name" if near else "leave it out"
            warn_caller(
                f"Argument `params` holds {name!r}, which nothing reads; {remedy}. The parameters "
                f"are {', '.join(declared)}.",
                ParameterWarning,
            )
