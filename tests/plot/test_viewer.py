"""Pages of `view`: what they show, how it is packed, and whether a browser draws it."""

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxmech as jm
from jaxmech.parts import Visual, gravity, ground, planar_body, revolute, spatial_body
from jaxmech.plot.scene import Item
from jaxmech.plot.viewer import Stream

TS = np.linspace(0.0, 1.0, 11)
GRAVITY = 9.81
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


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
        box = Visual.box((0.1, 0.2, 1.2), color=(0.2, 0.4, 0.6))
        bar = spatial_body("bar", mass=2.0, inertia=(0.1, 0.1, 0.1), visual=box)
        hinge = revolute("hinge", ground, (0.3, 0, 0), bar, (0, 0, 0.5), axis=(0, 1, 0))
    return jm.parts.Mechanism([bar], [hinge], [gravity(GRAVITY)])


def swing(bar: jm.parts.Mechanism, angle: Any = 0.0) -> jm.Solution:
    steps = jm.FixedSteps(per_save=2)
    angle = 1.0 * jnp.asarray(angle)
    return jm.simulate(bar.system, angle[None], jnp.zeros(1, angle.dtype), TS, {}, steps=steps)


def items(view: Any, group: str, kind: str = "", member: int = 0) -> list[Item]:
    return [
        x for x in view.items if x.group == group and x.member == member and kind in ("", x.kind)
    ]


def scene(page: str) -> dict[str, Any]:
    """The description in a page, without the numbers."""
    found = re.search(r"const SCENE = (.*);\nconst NUMBERS", page)
    assert found is not None
    return json.loads(found[1])


def numbers(page: str, entry: dict[str, Any]) -> np.ndarray:
    """An array in a page, read as the page does."""
    found = re.search(r'const NUMBERS = "([^"]*)"', page)
    assert found is not None
    planes = gzip.decompress(base64.b64decode(found[1]))
    whole = np.frombuffer(planes, np.uint8).reshape(4, -1).T.copy().view("<i4").ravel()
    size = entry["rows"] * entry["columns"]
    second = whole[entry["at"] : entry["at"] + size].reshape(entry["columns"], -1).T
    return second.cumsum(axis=0).cumsum(axis=0) * entry["step"]


def test_a_page_plays_the_motion_without_the_network(tmp_path: Path) -> None:
    file = tmp_path / "rod.html"
    view = jm.view(rod, (TS, TS[:, None]), {"l": 2.0}, file=file, fps=10.0)
    page = file.read_text("utf-8")
    assert not re.findall(r"https?://|src=|<link", page)
    shown = scene(page)
    np.testing.assert_allclose(shown["times"], TS)
    assert (shown["fps"], shown["box"]["planar"]) == (10.0, True)
    tip = 2 * np.stack([np.sin(TS), -np.cos(TS)], 1)
    names = [group["name"] for group in shown["groups"]]
    (bob,) = (x for x in shown["items"] if names[x["group"]] == "tip")
    np.testing.assert_allclose(numbers(page, bob["track"])[:, 9:11], tip, atol=1e-4)
    assert repr(view) == "View: t = 0 ... 1 s in real time, 11 frames in 1 s"
    (floor,) = items(view, "floor", member=-1)
    assert np.abs(floor.points).max() < 10  # the part of the floor that is near
    assert [x.kind for x in items(view, "trails")] == ["trail"]


def test_numbers_are_packed_to_half_a_step() -> None:
    rng = np.random.default_rng(0)
    smooth = np.cumsum(rng.normal(size=(40, 3)), axis=0)
    stream = Stream()
    entry, again = stream.add(smooth, 1e-3), stream.add(smooth, 1e-3)
    failed = smooth.copy()
    failed[25:] = np.nan
    short, fixed = stream.add(failed, 1e-3), stream.add(np.ones((40, 2)), 1e-3)
    page = f'const NUMBERS = "{stream.text()}"'
    np.testing.assert_allclose(numbers(page, entry), smooth, atol=0.51e-3)
    np.testing.assert_allclose(numbers(page, short), smooth[:25], atol=0.51e-3)
    np.testing.assert_allclose(numbers(page, fixed), [[1.0, 1.0]])
    assert entry is again


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_force_of_a_joint_carries_a_hanging_body(dimension: int) -> None:
    bar = hanging_bar(dimension)
    sol = swing(bar)
    view = jm.view(bar, sol, show=False, fps=5.0, force_scale=0.01)
    (arrow,) = items(view, "force of hinge")
    start, end = np.moveaxis(arrow.points, 1, 0)
    up = 1 if dimension == 2 else 2
    np.testing.assert_allclose(start[:, 0], 0.3)
    weight = np.zeros(3)
    weight[up] = 0.01 * 2.0 * GRAVITY
    np.testing.assert_allclose(end - start, np.broadcast_to(weight, (6, 3)), atol=1e-9)
    assert "forces of hinge" in repr(view)
    shown = scene(view.html())
    assert shown["legend"][0]["text"] == "forces of joints, 100 N per m"
    assert shown["down"][up] == -1
    chosen = jm.view(bar, sol, show=False)
    (arrow,) = items(chosen, "force of hinge")
    length = arrow.points[0, 1, up] - arrow.points[0, 0, up]
    assert length == pytest.approx(0.35 * chosen.box.size)
    assert not items(jm.view(bar, sol, show=False, forces=False), "force of hinge")


def test_a_body_is_shown_by_its_visual_and_knows_its_mass() -> None:
    bar = hanging_bar(3)
    view = jm.view(bar, swing(bar, 0.3), show=False, fps=5.0)
    (solid,) = items(view, "bar", "solid")
    assert solid.color == (0.2, 0.4, 0.6)
    assert solid.mesh is not None
    np.testing.assert_allclose(np.ptp(solid.mesh[0], axis=0), [0.1, 0.2, 1.2])
    axes, origin = solid.points[:, :3], solid.points[:, 3]
    np.testing.assert_allclose(origin + 0.5 * axes[:, 2], [[0.3, 0, 0]] * 6, atol=1e-6)
    page = view.html()
    shown = scene(page)
    group = next(x for x in shown["groups"] if x["name"] == "bar")
    assert (group["mass"], group["names"]) == (2.0, ["hinge.angle"])
    assert numbers(page, group["values"])[0] == pytest.approx([0.3], abs=1e-5)
    entry = next(x for x in shown["items"] if shown["groups"][x["group"]]["name"] == "bar")
    row, c, s = numbers(page, entry["track"])[0], np.cos(0.3), np.sin(0.3)
    np.testing.assert_allclose(row[:9] / shown["size"], [c, 0, -s, 0, 1, 0, s, 0, c], atol=2e-5)


def test_the_first_picture_frames_the_whole_motion() -> None:
    view = jm.view(rod, (TS, TS[:, None]), {"l": 2.0}, show=False)
    box = view.box
    np.testing.assert_allclose(box.outermost.min(axis=0)[:2], box.low[:2])
    assert 2 * np.sin(1.0) < box.high[0] < 2 * np.sin(1.0) + 0.2  # of the bob
    assert 0.0 < box.high[1] < 0.2


@pytest.mark.slow
def test_a_batch_in_single_precision_has_ghosts() -> None:
    bar = hanging_bar(3)
    motions = jax.vmap(lambda angle: swing(bar, angle))(jnp.linspace(0.1, 0.9, 20, dtype="float32"))
    assert motions.q.dtype == jnp.float32
    view = jm.view(bar, motions, show=False, fps=5.0)
    assert {x.member for x in view.items} == {-1, *range(16)} - {-1}
    some = jax.tree.map(lambda x: x[np.array([3, 19])], motions)
    two = jm.view(bar, some, show=False, fps=5.0, force_scale=0.01)
    single = jax.tree.map(lambda x: x[3], motions)
    first = jm.view(bar, single, show=False, fps=5.0, force_scale=0.01)
    for name in ("bar", "force of hinge"):
        pair = items(two, name)[0].points, items(first, name)[0].points
        np.testing.assert_allclose(*pair, atol=2e-4)


def test_a_trajectory_that_failed_disappears() -> None:
    q = np.stack([TS, TS])[..., None]
    q[1, 6:] = np.nan
    page = jm.view(rod, (TS, q), {"l": 1.0}, show=False, fps=10.0).html()
    items = [x for x in scene(page)["items"] if x["kind"] == "solid"]
    rows = {x["member"]: x["track"]["rows"] for x in items}
    assert rows == {0: 11, 1: 6}


def in_browser(page: Path, settings: str, *options: str) -> tuple[str, str]:
    """What a browser prints for a page, and the messages of its console."""
    assert CHROMIUM is not None
    usual = ["--headless=new", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader"]
    usual += ["--enable-unsafe-swiftshader", "--enable-logging=stderr", "--v=0"]
    usual += ["--virtual-time-budget=1500", f"--user-data-dir={page.parent / 'browser'}"]
    run = subprocess.run(
        [CHROMIUM, *usual, *options, f"{page.as_uri()}#play=0&t=0.5{settings}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = "\n".join(line for line in run.stderr.splitlines() if "CONSOLE" in line)
    return run.stdout, console


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("size", [(400, 700), (1400, 500)])
def test_a_browser_draws_the_page(tmp_path: Path, size: tuple[int, int]) -> None:
    bar = hanging_bar(3)
    page = jm.view(bar, swing(bar, 0.5), show=False, fps=10.0).save(tmp_path / "bar.html")
    text, console = in_browser(page, "&body=bar", "--dump-dom")
    assert not console
    root = re.search(r"<html[^>]*>", text)
    assert root is not None
    assert 'data-ready="1"' in root[0]
    assert "data-fault" not in root[0]
    assert ">2.000 kg<" in text  # the card of the body
    shot = tmp_path / "bar.png"
    in_browser(
        page, "&bare=1&theme=dark", f"--screenshot={shot}", "--window-size={},{}".format(*size)
    )
    with Image.open(shot) as picture:
        pixels = np.asarray(picture.convert("RGB"), float)
    red, _, blue = np.moveaxis(pixels, 2, 0)
    rows, columns = np.nonzero((blue > 50) & (blue > 1.5 * red))  # the bar
    height, width = red.shape
    assert rows.size > 0.01 * height * width
    assert np.ptp(rows) > 0.3 * height
    assert columns.min() > 2
    assert columns.max() < width - 3
    assert rows.max() < height - 3
