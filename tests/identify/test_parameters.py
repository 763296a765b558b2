"""Which numbers are fitted, how they are bounded, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.identify import MultiStart, PhysicalInertia
from jaxmech.identify.problem.parameters import parameters
from jaxmech.identify.problem.transforms import Bounds

TREE: dict[str, Any] = {
    "arm": {"c": np.array([0.1, 0.2]), "l": 2.0},
    "count": 3,
    "m": 1.5,
    "springs": [1.0, 2.0],
}


@pytest.mark.parametrize(
    ("free", "names"),
    [
        (None, ("arm.c[0]", "arm.c[1]", "arm.l", "count", "m", "springs[0]", "springs[1]")),
        (["arm"], ("arm.c[0]", "arm.c[1]", "arm.l")),
        (["arm.c", "m"], ("arm.c[0]", "arm.c[1]", "m")),
        (["springs"], ("springs[0]", "springs[1]")),
        (["springs[1]"], ("springs[1]",)),
    ],
)
def test_names_of_free_numbers(free: Any, names: tuple[str, ...]) -> None:
    """Names are in the order of the tree; the name of a branch stands for all its leaves."""
    found = parameters(TREE, free=free)
    assert found.layout.names == names


def test_the_start_is_where_all_free_numbers_are_zero() -> None:
    bounds = {"arm.c": (0, None), "arm.l": (1, 3), "m": (None, 4)}
    layout = (found := parameters(TREE, bounds=bounds)).layout
    back = layout.params(jnp.zeros(layout.size), found.leaves)
    for x, y in zip(jax.tree.leaves(back), jax.tree.leaves(TREE), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-15)
    np.testing.assert_allclose(
        layout.numbers(jnp.zeros(layout.size), found.leaves), [0.1, 0.2, 2.0, 3.0, 1.5, 1.0, 2.0]
    )
    moved = layout.params(jnp.full(layout.size, 0.3), found.leaves)
    np.testing.assert_allclose(moved["m"], 4 - 2.5 * np.exp(-0.3))
    np.testing.assert_allclose(moved["arm"]["c"], TREE["arm"]["c"] * np.exp(0.3))
    np.testing.assert_allclose(moved["count"], 3 * 1.3)


def test_a_start_value_without_a_decimal_point_is_a_number() -> None:
    """`free` alone decides what is fitted; what is not fitted keeps its type."""
    start = {"stiffness": 10, "links": np.array([2, 3]), "closed": True}
    found = parameters(start)
    assert found.layout.names == ("links[0]", "links[1]", "stiffness")
    assert all(jnp.issubdtype(x.dtype, jnp.floating) for x in found.leaves[1:])
    some = parameters(start, free=["stiffness"])
    assert some.layout.names == ("stiffness",)
    assert some.layout.params(jnp.zeros(1), some.leaves)["links"].dtype == int


@pytest.mark.parametrize(
    ("way", "start", "low", "high"),
    [
        (Bounds(), -2.0, -np.inf, np.inf),
        (Bounds(), 0.0, -np.inf, np.inf),
        (Bounds(low=1.0), 1.5, 1.0, np.inf),
        (Bounds(high=1.0), -3.0, -np.inf, 1.0),
        (Bounds(-1.0, 2.0), 1.9, -1.0, 2.0),
    ],
)
def test_transforms_rise_between_their_bounds(
    way: Any, start: float, low: float, high: float
) -> None:
    z = jnp.linspace(-8.0, 8.0, 33)
    values = np.asarray(jax.vmap(lambda z: way.value(z[None], jnp.asarray(start)))(z))
    assert np.all(np.diff(values) > 0)
    assert low < values[0] < start < values[-1] < high
    np.testing.assert_allclose(values[16], start, rtol=1e-15)


def test_every_inertia_is_that_of_a_body() -> None:
    """Definite, and no principal moment above the sum of the others (Wensing 2018)."""
    way, start = PhysicalInertia(), jnp.diag(jnp.array([1.0, 1.2, 1.3]))
    z = 3.0 * np.random.default_rng(0).normal(size=(200, 6))
    for J in np.asarray(jax.vmap(lambda z: way.value(z, start))(jnp.asarray(z))):
        np.testing.assert_array_equal(J, J.T)
        moments = np.linalg.eigvalsh(J)
        assert moments[0] > 0
        assert moments[2] <= (moments[0] + moments[1]) * (1 + 1e-12)
    np.testing.assert_allclose(way.value(jnp.zeros(6), start), start, atol=1e-15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"free": ["arn"]},
            "must name parameters, but 'arn' is not .*; did you mean `arm`",
        ),
        ({"free": ["zzz"]}, "'zzz' is not .* Known: arm, arm.c, arm.l, count, m"),
        ({"free": "arm"}, r"`free` must be a sequence of names: write \('arm',\)"),
        ({"free": []}, "`free` must leave at least one number to fit"),
        (
            {"free": ["m"], "bounds": {"arm.l": (0, 3)}},
            "must name parameters, but 'arm.l'",
        ),
        ({"prior": {"mass": (1, 1)}}, "must name parameters, but 'mass'"),
        ({"bounds": {"m": (2, None)}}, r"begin inside the bounds, but m = 1.5 must be .*than 2"),
        ({"bounds": {"m": (None, 1.5)}}, "but m = 1.5 must be less than 1.5; move the start"),
        ({"bounds": {"m": (0, 1)}}, "but m = 1.5 must lie between 0 and 1"),
        ({"bounds": {"arm.c": (0.15, 1)}}, r"but arm.c = \[0.1 0.2\] must lie between"),
        ({"bounds": {"m": (2, 1)}}, "`bounds` must have low < high for 'm'"),
        ({"bounds": {"m": 3}}, r"`bounds` must hold \(low, high\) for 'm'"),
        ({"bounds": {"m": (0, 1, 2)}}, r"`bounds` must hold \(low, high\) for 'm'"),
        ({"bounds": {"m": (float("nan"), None)}}, "`bounds` must .* for 'm'"),
        ({"bounds": {"m": PhysicalInertia()}}, "but m = 1.5 must be the inertia of a body"),
        ({"prior": {"m": 3}}, r"`prior` must hold \(mean, standard deviation\) for 'm'"),
        ({"prior": {"m": (1, 0)}}, "a positive standard deviation for 'm'"),
        ({"prior": {"m": (np.inf, 1)}}, "a finite mean and .* for 'm'"),
        ({"prior": {"m": ([1, 2], 1)}}, r"numbers or arrays of shape \(\)"),
    ],
)
def test_invalid_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        parameters(TREE, **options)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"m": float("nan")}, "`params0.*finite"),
        ({"n": True}, "write numbers instead of truth values"),
        ({}, "`params0` must hold the initial values"),
    ],
)
def test_invalid_parameters(params: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        parameters(params)


def test_the_first_starting_point_is_the_given_one() -> None:
    draws = MultiStart(count=1000, spread=0.5).draws(2)
    np.testing.assert_array_equal(draws[0], 0.0)
    np.testing.assert_allclose(draws.std(axis=0), 0.5, rtol=0.1)
