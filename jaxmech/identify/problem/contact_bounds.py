"""Bounds that follow from the laws of contact: limits of friction and restitutions."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from jaxmech.identify.problem.transforms import Bounds
from jaxmech.system import Params, System, Unilateral
from jaxmech.utils.trees import leaf_names


def contact_bounds(system: System, params: Params) -> dict[str, Bounds]:
    """The bounds of numbers below which a friction would push, or beyond which a rebound gains.

    A limit of dry friction is not negative, and a restitution is from 0 to 1. A number that decides
    one of them by its sign, or by whether it is above 1, keeps to that side, if it starts there.
    """
    # The limits and restitutions that are functions of the parameters, and their largest value.
    laws = list[tuple[Callable[[Any], Any], float]]()
    for inequality in system.unilateral:
        functions: tuple[Any, ...]
        if isinstance(inequality, Unilateral):
            functions, high = (inequality.restitution,), 1.0
        else:
            functions, high = (inequality.static, inequality.kinetic), np.inf
        for fn in filter(callable, functions):
            with suppress(KeyError):  # of an input or a controller, which a fit's parameters lack
                fn(params)
                laws.append((fn, high))
    names, (leaves, structure) = leaf_names(params), jax.tree.flatten(params)
    bounds: dict[str, Bounds] = {}

    def fault(law: Callable[[Any], Any], high: float, index: int, value: float) -> float:
        changed = [np.full(np.shape(x), value) if k == index else x for k, x in enumerate(leaves)]
        values = np.ravel(np.asarray(law(jax.tree.unflatten(structure, changed)), float))
        return float(max((-values).max(), (values - high).max()))

    def is_bound(index: int, last: float, beyond: float, kinds: Any = laws) -> bool:
        return any(
            fault(law, high, index, beyond) > 0 >= fault(law, high, index, last)
            for law, high in kinds
        )

    rebounds = [law for law in laws if law[1] == 1.0]
    for k, name in enumerate(names):
        start = np.asarray(leaves[k])
        if not np.issubdtype(start.dtype, np.number):
            continue
        low, one = is_bound(k, 0.0, -1.0), is_bound(k, 1.0, 1.01, rebounds)
        bound = Bounds(0.0 if low else -np.inf, 1.0 if one else np.inf)
        if (low or one) and not bound.excludes(start):
            bounds[name] = bound
    return bounds
