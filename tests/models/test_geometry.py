"""Geometry of models: bodies keep their shape, and their points are in the right places."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.geometry import Solid, circle, coil, line, outline
from jaxmech.models import CATALOGUE, Model

OTHER: dict[str, dict[str, Any]] = {  # start variables of another state
    "pendulum": {"theta": 0.7},
    "double_pendulum": {"theta1": -1.0, "theta2": 0.4},
    "double_pendulum_angles": {"theta1": -1.0, "theta2": 1.4},
    "chain": {"theta": np.linspace(-1.0, 2.0, 10)},
    "bead_on_parabola": {"x1": -0.3},
    "bead_on_rod": {"r": 0.7},
    "particle_on_curve": {"x1": 0.6},
    "rolling_wheel": {"x": 1.0, "y": -2.0, "phi": 0.4, "theta": 1.1},
    "chaplygin_sleigh": {"x": 1.0, "y": -2.0, "theta": 1.1},
    "four_bars": {"angle": 0.8},
    "free_body": {"e": np.array([0.5, -0.1, 0.7, 0.3])},
    "andrews": {"beta": 0.9},
}
ELASTIC = ("spring", "rod")  # the rod is drawn as far as its bead; that of the pendulum is below


def drawn(model: Model, start: dict[str, Any]) -> dict[str, np.ndarray]:
    assert model.geometry is not None
    q, _ = model.initial(start)
    return placed(jax.jit(model.geometry)(q, 0.0, dict(model.params)))


def placed(shapes: Any) -> dict[str, Any]:
    """The points of shapes, and the vertices of solids."""
    return {
        name: x.origin[None] + x.vertices[:, : len(x.origin)] @ x.axes.T
        if isinstance(x, Solid)
        else x
        for name, x in shapes.items()
    }


@pytest.mark.parametrize("name", CATALOGUE)
def test_bodies_keep_their_shape(name: str) -> None:
    model = CATALOGUE[name]()
    one, two = drawn(model, {}), drawn(model, OTHER[name])
    assert {points.shape[-1] for points in one.values()} in ({2}, {3})
    moved = 0.0
    for key, points in one.items():
        assert np.isfinite(points).all(), key
        moved = max(moved, np.abs(points - two[key]).max())
        if points.ndim == 2 and key not in ELASTIC:
            sides = [np.linalg.norm(np.diff(x, axis=0), axis=1) for x in (points, two[key])]
            np.testing.assert_allclose(*sides, atol=1e-12, err_msg=key)
    assert moved > 1e-3


def test_the_wheel_rolls_as_it_is_drawn() -> None:
    """The lowest points of the rim are at rest where they touch the ground."""
    model = CATALOGUE["rolling_wheel"]()
    q, v = model.initial({"phi": 0.0, "theta": 0.6, "spin": -2.0, "turn": 0.0})
    points, rates = jax.jvp(
        lambda q: placed(model.geometry(q, jnp.zeros(()), model.params))["wheel"], (q,), (v,)
    )
    lowest, highest = (np.asarray(points[:, 2] == end(points[:, 2])) for end in (np.min, np.max))
    np.testing.assert_allclose(rates[lowest], 0.0, atol=1e-15)
    np.testing.assert_allclose(np.linalg.norm(rates[highest], axis=1), 2.0)


def test_shapes_have_their_named_form() -> None:
    ring = np.asarray(circle([1.0, 2.0, 3.0], 0.5, line([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])))
    np.testing.assert_allclose(np.linalg.norm(ring - np.array([1.0, 2.0, 3.0]), axis=1), 0.5)
    assert np.array_equal(ring[0], ring[-1])
    assert np.ptp(ring[:, 0]) == 0
    triangle = np.asarray(outline([0.0, 0.0], [1.0, 0.0], [0.0, 1.0]))
    assert np.array_equal(triangle[0], triangle[-1])


@pytest.mark.parametrize("d", [2, 3])
def test_a_coil_ends_at_its_ends(d: int) -> None:
    a, b = np.arange(1.0, 1 + d), np.array([0.3, -1.0, 2.0])[:d]
    spring = placed({"": coil(a, b, width=0.2)})[""]
    along = (b - a) / np.linalg.norm(b - a)
    reach = np.asarray((spring - a[None]) @ along)
    assert (reach.min(), reach.max()) == pytest.approx((0.0, np.linalg.norm(b - a)), abs=0.05)
    away = spring - a[None] - np.outer(reach, along)
    assert np.linalg.norm(away, axis=1).max() == pytest.approx(0.1, rel=0.15)
    assert np.isfinite(coil(a, a).axes).all()
