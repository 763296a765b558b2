"""Lines and dots become links, bobs, pins and supports, and keep their places."""

from typing import Any

import numpy as np
import pytest

from jaxmech.geometry import Solid
from jaxmech.plot.motions import links_of, points_of, trail_names

TURN = np.linspace(0.0, 2.0, 9)


def moved(points: Any, angle: np.ndarray = TURN) -> np.ndarray:
    """Points (k, d) that turn about z, over one trajectory and all times."""
    x = np.asarray(points, float)
    c, s, zero = np.cos(angle), np.sin(angle), 0 * angle
    turn = np.stack(
        [np.stack([c, -s, zero]), np.stack([s, c, zero]), np.stack([zero, zero, 1 + zero])]
    )
    d = x.shape[-1]
    return np.einsum("ijk,...j->k...i", turn[:d, :d], x)[None]


def outside(solid: Solid, k: int) -> np.ndarray:
    """The vertices of a solid at time k, in its dimension."""
    d = solid.origin.shape[-1]
    return solid.origin[0, k] + solid.vertices[0][:, :d] @ solid.axes[0, k].T


@pytest.mark.parametrize("d", [2, 3])
def test_a_line_is_a_link_with_round_ends(d: int) -> None:
    end = np.array([2.0, 0.0, 0.3])[:d]
    line = moved(np.stack([0 * end, end]))
    link = links_of({"rod": line})["rod.1"]
    for k in (0, 5):
        start, far = line[0, k]
        along = (outside(link, k) - start) @ (far - start) / np.linalg.norm(end)
        width = -along.min()
        assert 0.02 < width < 0.1
        assert along.max() == pytest.approx(np.linalg.norm(end) + width)


def test_a_line_of_changing_length_is_stretched() -> None:
    line = moved([[0.0, 0.0], [1.0, 0.0]]) * (1 + TURN)[None, :, None, None]
    bar = links_of({"rod": line})["rod.1"]
    assert np.linalg.norm(bar.axes[0, :, :, 0], axis=1) == pytest.approx(1 + TURN)
    assert np.linalg.norm(bar.axes[0, :, :, 1], axis=1) == pytest.approx(1.0)


def test_outlines_and_curves_stay() -> None:
    outline = moved([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    curve = moved(np.linspace([0.0, 0.0], [1.0, 0.0], 21))
    shapes = links_of({"plate": outline, "curve": curve})
    assert shapes["plate"] is outline
    assert shapes["curve"] is curve


def test_dots_are_bobs_pins_and_supports() -> None:
    pivot = np.zeros((1, 9, 2))
    joint, tip = moved([0.0, -1.0], 0.3 * TURN), moved([0.0, -2.0], 0.3 * TURN)
    shapes = {
        "one": np.stack([pivot, joint], axis=2), "two": np.stack([joint, tip], axis=2),
        "joint": joint, "tip": tip, "pivot": pivot, "far": pivot + 3.0,
    }  # fmt: skip
    solids = links_of(shapes)
    assert {*solids} == {
        "one.1", "two.1", "joint", "joint.solid", "tip", "tip.solid", "pivot.ground", "pivot.pin",
        "far",
    }  # fmt: skip
    width = {name: np.ptp(outside(solids[name], 0)[:, 0]) for name in ("joint.solid", "tip.solid")}
    assert width["tip.solid"] > 4 * width["joint.solid"]
    assert np.array_equal(solids["tip.solid"].origin, tip)
    assert outside(solids["pivot.ground"], 0)[:, 1].max() > 0.1  # above what hangs on it
    upright = links_of({name: -x for name, x in shapes.items()})["pivot.ground"]
    assert outside(upright, 0)[:, 1].min() < -0.1
    assert trail_names(solids, None) == ["tip"]


def test_shapes_of_a_body_with_a_solid_stay() -> None:
    line = moved([[0.0, 0.0], [1.0, 0.0]])
    solid = links_of({"a": line})["a.1"]
    shapes = {"body.1": solid, "body.axis": line}
    assert links_of(shapes)["body.axis"] is line


def test_a_trajectory_that_failed_is_unknown() -> None:
    line = np.concatenate([moved([[0.0, 0.0], [1.0, 0.0]])] * 2)
    line[0] = np.nan
    line[1, 5:] = np.nan
    link = links_of({"rod": line})["rod.1"]
    known = np.isfinite(points_of(link)).all(axis=(2, 3))
    assert known.tolist() == [[False] * 9, [True] * 5 + [False] * 4]
