"""Combinations that have a meaning, before formulas that were found by search.

Where a motion has no known forces, the masses and inertias of a mechanism are determined up to a
common factor: then those are the ratios of its base parameters to the first of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxmech.identify.inference.combinations import Combination
from jaxmech.identify.inference.identifiability import Identifiability
from jaxmech.identify.inference.information import Numbers
from jaxmech.identify.inference.sparse_null_space import independent

_NEW = 1e-5  # share of a gradient that must be new for a combination to be shown


def with_groups(result: Identifiability, groups: Sequence[Combination]) -> Identifiability:
    """The same result, with those groups that are determined, and further formulas after them.

    Example:
        >>> from jaxmech.identify.inference.identifiability import identifiability
        >>> J = np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> result = identifiability(["m", "I", "c"], [1.0, 3.0, 2.0], J.T @ J, noise=1e-3)
        >>> whole = Combination("I + 2 m", 5.0, J[0], "kg m^2")
        >>> [group.formula for group in with_groups(result, [whole]).groups]
        ['I + 2 m']
    """
    affected, values = ~result.directions.determined, result.directions.values

    def relative(group: Combination) -> Numbers:
        return (group.gradient * result.directions.scales)[affected]

    def determined(candidates: Sequence[Combination]) -> list[Combination]:
        return [group for group in candidates if result.determined(group.gradient)[0]]

    concerned = [group for group in groups if np.any(relative(group) != 0)]
    known = determined(concerned)
    sized = [group for group in concerned if group.value]
    if sized and not known:
        known = determined([group.over(sized[0]) for group in concerned if group is not sized[0]])
    search = result.combinations
    formulas = [Combination(str(f), f(values), f.gradient(values), "") for f in search.formulas]
    count = len(formulas) + search.missing
    chosen = independent([*known, *formulas], relative, count, least=_NEW)
    rest = [f for f, group in zip(search.formulas, formulas, strict=True) if group in chosen]
    search = replace(search, formulas=tuple(rest), missing=count - len(chosen))
    shown = tuple(group for group in known if group in chosen)
    return replace(result, combinations=search, groups=shown)
