"""Which numbers are fitted, how they are bounded, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import MultiStart
from jaxmech.identify.parameters import Bounds, contact_bounds, parameters

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


def test_unknowns_are_the_parameters_in_units_of_their_start() -> None:
    bounds = {"arm.c": (0, None), "arm.l": (1, 3), "m": (None, 4)}
    layout = (found := parameters(TREE, bounds=bounds)).layout
    first = layout.first(found.leaves)
    back = layout.params(jnp.asarray(first), found.leaves)
    for x, y in zip(jax.tree.leaves(back), jax.tree.leaves(TREE), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-15)
    np.testing.assert_allclose(
        layout.numbers(jnp.asarray(first), found.leaves), [0.1, 0.2, 2.0, 3.0, 1.5, 1.0, 2.0]
    )
    np.testing.assert_array_equal(first, 1.0)
    np.testing.assert_allclose(layout.limits(found.leaves)[:, 2], [0.5, 1.5])
    z = np.full(layout.size, 0.3)
    moved = layout.params(layout.moved(first, z, found.leaves), found.leaves)
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
    assert some.layout.params(jnp.ones(1), some.leaves)["links"].dtype == int


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
def test_moves_without_bounds_rise_between_those_of_the_parameters(
    way: Any, start: float, low: float, high: float
) -> None:
    at, z = np.asarray(start), np.linspace(-8.0, 8.0, 33)[:, None]
    values = (way.moved(way.first(at), z, at) * way.units(at)).ravel()
    assert np.all(np.diff(values) > 0)
    assert low < values[0] < start < values[-1] < high
    np.testing.assert_allclose(values[16], start, rtol=1e-15)


def test_the_first_starting_point_is_the_given_one() -> None:
    draws = MultiStart(count=1000, spread=0.5).draws(2)
    np.testing.assert_array_equal(draws[0], 0.0)
    np.testing.assert_allclose(draws.std(axis=0), 0.5, rtol=0.1)


def _position(q: Any, t: Any, p: Any) -> Any:
    return q[0]


PARAMS = {"e": 0.3, "k": 4.0, "mu": 0.6, "N": 1.0, "extra": 0.0}
# A door of 1 kg m^2 with a spring: it rubs, and its frame is a stop.
DOOR = jm.System(
    lambda q, v, t, p: v @ v / 2 - p["k"] * q @ q / 2,
    [
        jm.Unilateral(_position, restitution=lambda p: p["e"], name="frame"),
        jm.DryFriction(_position, static=lambda p: p["mu"] * p["N"] + p["extra"] ** 2, name="rub"),
    ],
    coordinates=("angle",),
)


def test_numbers_that_decide_a_limit_or_a_restitution_are_bounded() -> None:
    bounds = contact_bounds(DOOR, PARAMS)
    assert {name: (b.low, b.high) for name, b in bounds.items()} == {
        "e": (0.0, 1.0), "mu": (0.0, np.inf), "N": (0.0, np.inf),
    }  # fmt: skip
    assert "e" not in contact_bounds(DOOR, {**PARAMS, "e": 1.0})  # a start on a bound
    assert contact_bounds(DOOR, {**PARAMS, "mu": 1})["mu"].low == 0.0
    some = {name: value for name, value in PARAMS.items() if name != "N"}  # N is recorded
    assert contact_bounds(DOOR, some).keys() == {"e"}


@pytest.mark.slow
def test_a_fit_does_not_leave_through_negative_friction() -> None:
    ts = jnp.linspace(0.0, 6.0, 61)
    free = {name: PARAMS[name] for name in ("e", "k", "mu")}
    others = {"N": 1.0, "extra": 0.0}
    sol = jm.simulate(DOOR, [1.4], [0.0], ts, {**free, **others})
    noise = 0.005 * jax.random.normal(jax.random.key(0), sol.q.shape)
    recording = jm.Recording(ts, sol.q + noise, [1.4], [0.0])
    start = {"e": 0.5, "k": 5.0, "mu": 0.3, **others}
    fit = jm.fit(DOOR, recording, start, free=list(free))
    assert fit.params["mu"] == pytest.approx(0.6, abs=0.1)
    assert fit.params["e"] == pytest.approx(0.3, abs=0.03)
    assert fit.params["k"] == pytest.approx(4.0, abs=0.3)
