"""The tableaus are explicit Runge-Kutta methods of the order that they claim."""

from typing import Any

import numpy as np
import pytest

from jaxmech import RK4, DormandPrince5, DormandPrince8

PAIRS = {
    "DormandPrince5": DormandPrince5,
    "DormandPrince8": DormandPrince8,
}
METHODS = {"RK4": RK4, **PAIRS}


def trees(order: int) -> list[Any]:
    """All rooted trees with up to `order` vertices, each a sorted tuple of subtrees."""
    found: dict[int, set[Any]] = {1: {()}}
    for size in range(2, order + 1):
        found[size] = _forests(size - 1, found)
    return [tree for size in found for tree in sorted(found[size])]


def _forests(size: int, found: dict[int, set[Any]]) -> set[Any]:
    if size == 0:
        return {()}
    return {
        tuple(sorted((tree, *rest)))
        for first in range(1, size + 1)
        for tree in found[first]
        for rest in _forests(size - first, found)
    }


def vertices(tree: Any) -> int:
    return 1 + sum(map(vertices, tree))


def density(tree: Any) -> int:
    return vertices(tree) * int(np.prod([density(branch) for branch in tree], dtype=int))


def weights(tree: Any, a: np.ndarray) -> np.ndarray:
    """What every stage contributes to a tree: products over its branches of a times theirs."""
    return np.prod([a @ weights(branch, a) for branch in tree], axis=0) * np.ones(len(a))


def square(stages: Any) -> np.ndarray:
    a = np.zeros((len(stages), len(stages)))
    for i, row in enumerate(stages):
        a[i, : len(row)] = row
    return a


@pytest.mark.parametrize("name", METHODS)
def test_order_conditions(name: str) -> None:
    """b . Phi(tree) = 1 / density(tree) for all rooted trees up to the order, and not beyond it."""
    tableau = METHODS[name].tableau
    a, b = square(tableau.stages), np.array(tableau.weights)

    def miss(order: int) -> float:
        wanted = [tree for tree in trees(order) if vertices(tree) == order]
        return max(abs(b @ weights(tree, a) - 1 / density(tree)) for tree in wanted)

    assert all(miss(order) < 1e-13 for order in range(1, tableau.order + 1))
    assert miss(tableau.order + 1) > 1e-7
    np.testing.assert_allclose(a.sum(1), tableau.nodes, atol=1e-13)


@pytest.mark.parametrize("name", PAIRS)
def test_error_estimates_vanish_up_to_their_order(name: str) -> None:
    """e . Phi(tree) = 0 for all trees up to order 4, or 5 and 3 for the pair of order 8."""
    tableau, errors = PAIRS[name].tableau, PAIRS[name].errors
    a = square([*tableau.stages, tableau.weights])
    orders = (4,) if len(errors) == 1 else (5, 3)
    for given, order in zip(errors, orders, strict=True):
        error = np.zeros(len(a))
        error[: len(given)] = given
        found = {tree: abs(error @ weights(tree, a)) for tree in trees(order + 1)}
        assert max(size for tree, size in found.items() if vertices(tree) <= order) < 1e-12
        assert max(size for tree, size in found.items() if vertices(tree) > order) > 1e-5
