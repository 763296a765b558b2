"""Pages of `view`: the messages that viser plays, decoded from the file."""

import base64
import importlib.util
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.parts import gravity, ground, planar_body, revolute, spatial_body

msgspec, zstandard = pytest.importorskip("msgspec"), pytest.importorskip("zstandard")

TS = np.linspace(0.0, 1.0, 11)
GRAVITY = 9.81


def rod(q: Any, t: Any, p: Any) -> dict[str, Any]:
    """A rod of length l from the origin at the angle q, on a floor that goes far."""
    tip = p["l"] * jnp.concatenate([jnp.sin(q), -jnp.cos(q)])
    floor = jnp.array([[-1e3, -1.5], [1e3, -1.5]])
    return {"rod": jnp.stack([jnp.zeros(2), tip]), "tip": tip, "floor": floor}


def hanging_bar(dimension: int) -> jm.parts.Mechanism:
    """A bar of 2 kg that hangs on a hinge, half a metre above its centre."""
    if dimension == 2:
        bar = planar_body("bar", mass=2.0, inertia=0.1)
        hinge = revolute("hinge", ground, (0.3, 0), bar, (0, 0.5))
    else:
        bar = spatial_body("bar", mass=2.0, inertia=(0.1, 0.1, 0.1))
        hinge = revolute("hinge", ground, (0.3, 0, 0), bar, (0, 0, 0.5), axis=(0, 1, 0))
    return jm.parts.Mechanism([bar], [hinge], [gravity(GRAVITY)])


def recording(page: str) -> dict[str, Any]:
    """The recording in a page: its duration and its messages with their times."""
    data = re.search(r'window\.__VISER_EMBED_DATA__="([^"]*)"', page)
    assert data is not None
    raw = base64.b64decode(data[1])
    whole = zstandard.ZstdDecompressor().decompress(raw[8:], int.from_bytes(raw[:8], "little"))
    size = int.from_bytes(whole[:8], "little")
    return msgspec.msgpack.decode(whole[8 : 8 + size])


def names(page: str) -> set[str]:
    messages = [message for _, message in recording(page)["messages"]]
    return {m["name"] for m in messages if "props" in m and "name" in m}


def node(view: Any, name: str) -> np.ndarray:
    """The points of a node at all frames."""
    return next(x for x in view.nodes if x.name == name).points


def test_a_page_plays_the_motion_without_the_network(tmp_path: Path) -> None:
    file = tmp_path / "rod.html"
    view = jm.view(rod, (TS, TS[:, None]), {"l": 2.0}, file=file, fps=10.0)
    page = file.read_text("utf-8")
    assert set(re.findall(r"https?://[\w.]+", page)) <= {"http://www.w3.org"}
    played = recording(page)
    assert played["durationSeconds"] == pytest.approx(1.1)
    assert {"/bodies/rod/rods", "/bodies/tip/dots", "/still/lines", "/time"} <= names(page)
    moves = [t for t, m in played["messages"] if m.get("name") == "/bodies/rod/rods" and t > 0]
    np.testing.assert_allclose(moves, 0.1 * np.arange(1, 11))
    assert repr(view) == "View: t = 0 ... 1 s in real time, 11 frames in 1 s"
    tip = 2 * np.stack([np.sin(TS), -np.cos(TS)], 1)
    np.testing.assert_allclose(node(view, "/bodies/tip/dots")[:, 0, :2], tip, atol=1e-6)
    assert np.abs(node(view, "/still/lines")).max() < 10  # the part of the floor that is near


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_force_of_a_joint_carries_a_hanging_body(dimension: int) -> None:
    bar = hanging_bar(dimension)
    sol = jm.simulate(bar.system, [0.0], [0.0], TS, {}, steps=jm.FixedSteps(per_save=2))
    view = jm.view(bar, sol, show=False, fps=5.0, force_scale=0.01)
    (start, end) = np.moveaxis(node(view, "/forces/hinge")[:, 0], 1, 0)
    up = 1 if dimension == 2 else 2
    np.testing.assert_allclose(start[:, 0], 0.3)
    weight = np.zeros(3)
    weight[up] = 0.01 * 2.0 * GRAVITY
    np.testing.assert_allclose(end - start, np.broadcast_to(weight, (6, 3)), atol=1e-9)
    assert "forces of hinge" in repr(view)
    assert "/forces/hinge" in names(view.html())
    chosen = jm.view(bar, sol, show=False)
    (start, end) = np.moveaxis(node(chosen, "/forces/hinge")[:, 0], 1, 0)
    assert end[0, up] - start[0, up] == pytest.approx(0.35 * chosen.box.size)
    assert not any("forces" in x.name for x in jm.view(bar, sol, show=False, forces=False).nodes)


@pytest.mark.slow
def test_a_batch_in_single_precision_has_ghosts() -> None:
    bar = hanging_bar(3)

    def swing(angle: jax.Array) -> jm.Solution:
        steps = jm.FixedSteps(per_save=2)
        return jm.simulate(bar.system, angle[None], jnp.zeros(1, angle.dtype), TS, {}, steps=steps)

    motions = jax.vmap(swing)(jnp.linspace(0.1, 0.9, 20, dtype=jnp.float32))
    assert motions.q.dtype == jnp.float32
    shown = names(jm.view(bar, motions, show=False, fps=5.0).html())
    assert {name.split("/")[2] for name in shown if name.startswith("/ghosts/")} == {
        str(k) for k in range(1, 16)
    }
    two = jm.view(bar, motions, show=False, fps=5.0, members=[3, 19], force_scale=0.01)
    assert "/ghosts/19/dots" in names(two.html())
    first = jm.view(
        bar, jax.tree.map(lambda x: x[3], motions), show=False, fps=5.0, force_scale=0.01
    )
    for name in ("/bodies/bar/dots", "/forces/hinge"):
        np.testing.assert_allclose(node(two, name), node(first, name), atol=2e-4)


def test_a_trajectory_that_failed_disappears() -> None:
    q = np.stack([TS, TS])[..., None]
    q[1, 6:] = np.nan
    page = jm.view(rod, (TS, q), {"l": 1.0}, show=False, fps=10.0).html()
    hidden = [
        (round(t, 6), m["visible"])
        for t, m in recording(page)["messages"]
        if m["type"] == "SetSceneNodeVisibilityMessage" and m["name"] == "/ghosts/1/dots"
    ]
    assert hidden[-1] == (0.6, False)


def test_parameters_of_their_own() -> None:
    q = np.broadcast_to(TS[:, None], (2, 11, 1))
    lengths = {"l": np.array([1.0, 3.0])}
    view = jm.view(rod, (TS, q), lengths, params_axes=0, show=False)
    reach = [np.linalg.norm(node(view, f"{x}/dots")[0, 0]) for x in ("/bodies/tip", "/ghosts/1")]
    np.testing.assert_allclose(reach, [1.0, 3.0], rtol=1e-4)


def test_bad_arguments_of_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    motion = (TS, TS[:, None])
    with pytest.raises(ValueError, match=r"`file` must end in .html, but is 'rod.gif'"):
        jm.view(rod, motion, {"l": 1.0}, file="rod.gif")
    with pytest.raises(FileNotFoundError, match="`file` must be in a folder that exists"):
        jm.view(rod, motion, {"l": 1.0}, file=tmp_path / "none" / "rod.html")
    with pytest.raises(ValueError, match="`force_scale`"):
        jm.view(rod, motion, {"l": 1.0}, force_scale=0.0)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install viser"):
        jm.view(rod, motion, {"l": 1.0})
