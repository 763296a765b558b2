"""Animations: the frames at a time, their rate, and the written files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import jaxmech as jm
from jaxmech import meshes
from jaxmech.geometry import solid
from jaxmech.plot.animation import Animation
from jaxmech.plot.motions import Track

TS = np.linspace(0.0, 2.0, 21)


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def rod(q: Any, t: Any, p: Any) -> dict[str, Any]:
    """A rod of a given length from the origin, at the angle q."""
    tip = p["l"] * jnp.concatenate([jnp.sin(q), -jnp.cos(q)])
    floor = jnp.array([[-50.0, -1.5], [50.0, -1.5]])
    return {
        "rod": jnp.stack([jnp.zeros(2), tip]),
        "pivot": jnp.zeros(2),
        "tip": tip,
        "floor": floor,
    }


def trails(animation: Animation, marker: str = "None") -> list[np.ndarray]:
    """The points of every line, or of every dot with the marker "o", (k, d)."""
    return [
        np.transpose(one.get_data()) for one in animation.ax.lines if one.get_marker() == marker
    ]


def shown(animation: Animation) -> list[np.ndarray]:
    """The centres of all bobs and pins that are seen, (2,)."""
    back, centres = animation.ax.transData.inverted(), []
    for patch in animation.ax.patches:
        corners = back.transform(patch.get_transform().transform(patch.get_path().vertices))
        low, high = corners.min(axis=0), corners.max(axis=0)
        reach = np.linalg.norm(corners - (low + high) / 2, axis=1).max()
        if patch.get_visible() and reach < 0.51 * (high - low).min():
            centres.append((low + high) / 2)
    return centres


def test_a_cubic_motion_is_interpolated_exactly() -> None:
    ts = np.array([0.0, 0.3, 0.7, 1.2])
    cubic, rate = np.poly1d([1.0, -2.0, 0.5, 3.0]), np.poly1d([3.0, -4.0, 0.5])
    for sign in (1, -1):  # also backwards in time
        t = sign * ts
        track = Track(t[None], cubic(t)[None, :, None], rate(t)[None, :, None])
        at = sign * np.linspace(0.0, 1.2, 23)
        np.testing.assert_allclose(track.at(at)[0, :, 0], cubic(at), atol=1e-14)
        assert np.isnan(track.at(sign * np.array([-0.1, 1.3]))).all()


def test_a_ball_that_bounces_between_saves_is_where_it_was() -> None:
    """It falls 1.25 m in half a second, and is back at 0.8 of its speed; saves are far apart."""
    floor = jm.Unilateral(lambda q, t, p: q[0], restitution=0.8, name="floor")
    ball = jm.System(lambda q, v, t, p: 0.5 * v @ v - 10.0 * q[0], [floor], coordinates=("y",))
    sol = jm.simulate(ball, [1.25], [0.0], [0.0, 0.4, 1.2], steps=jm.FixedSteps(2))
    motion = jm.animate(lambda q, t, p: {"ball": jnp.stack([0.0 * q[0], q[0]])}, sol, None)
    motion.draw(1.2)
    t, trail = np.linspace(0.0, 1.2, 121), max(trails(motion), key=len)
    bounced = 4.0 * (t - 0.5) - 5.0 * (t - 0.5) ** 2
    np.testing.assert_allclose(trail[:, 1], np.where(t < 0.5, 1.25 - 5 * t**2, bounced), atol=1e-9)


def test_a_failed_trajectory_is_shown_until_it_failed() -> None:
    q = np.sin(np.stack([TS, TS]))[..., None]
    q[1, 12:] = np.nan
    motion = jm.animate(rod, (TS, q), {"l": 1.0})
    motion.draw(1.0)
    assert len(shown(motion)) == 3  # two tips and the pivot
    motion.draw(2.0)
    assert len(shown(motion)) == 2
    assert jm.animate(rod, (TS, q[1]), {"l": 1.0}).ts[-1] == TS[11]


@pytest.mark.parametrize("failed", [0, 1])
def test_a_trajectory_that_failed_from_the_start_is_not_shown(failed: int) -> None:
    q = np.sin(np.stack([TS, TS]))[..., None]
    q[failed] = np.nan
    motion = jm.animate(rod, (TS, q), {"l": 1.0})
    motion.draw(1.0)
    assert len(shown(motion)) == 2  # a tip and the pivot


def test_a_moment_shows_the_state_of_that_time() -> None:
    motion = jm.animate(rod, (TS, TS[:, None]), {"l": 2.0})
    ax = motion.draw(1.0)
    assert ax.get_title(loc="left") == "t = 1.00 s"
    pivot, tip = shown(motion)
    np.testing.assert_allclose(pivot, [0, 0], atol=1e-9)
    np.testing.assert_allclose(tip, [2 * np.sin(1.0), -2 * np.cos(1.0)], atol=1e-6)
    trail = max(trails(motion), key=len)
    np.testing.assert_allclose(np.linalg.norm(trail, axis=1), 2.0, atol=1e-6)
    np.testing.assert_allclose(trail[-1], tip, atol=1e-9)
    assert len(trail) == 101  # four points for each of the 25 frames of a second


def test_what_moves_fills_the_picture_at_equal_scales() -> None:
    ax = jm.animate(rod, (TS, TS[:, None]), {"l": 2.0}).draw(0.0)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    assert ax.get_aspect() == 1.0
    assert left < 0 < 2 < right < 3  # the floor is much wider
    assert low < -2 < 2 * np.cos(np.pi - 2) < high
    assert ax.get_xlabel() == "x [m]"


def test_members_of_a_batch_have_the_parameters_of_their_runs() -> None:
    lengths = np.linspace(1.0, 2.0, 20)
    turn = jm.System(lambda q, v, t, p: 0.5 * p["l"] ** 2 * v @ v, coordinates=("angle",))

    def turned(length: Any) -> jm.Solution:
        return jm.simulate(turn, [0.5], [1.0], TS, {"l": length}, steps=jm.FixedSteps(1))

    sols = jax.vmap(turned)(jnp.asarray(lengths))
    motion = jm.animate(rod, sols)
    title = motion.draw(0.0).get_title(loc="left")
    assert title == "t = 0.00 s, 16 of 20"
    reach = sorted(np.linalg.norm(x) for x in shown(motion))
    np.testing.assert_allclose(reach, [0.0, *lengths[:16]], atol=1e-12)
    two = jm.animate(rod, jax.tree.map(lambda x: x[np.array([19, 3])], sols), {"l": 3.0})
    two.draw(0.0)
    reach = sorted(np.linalg.norm(x) for x in shown(two))
    np.testing.assert_allclose(reach, [0.0, 3.0, 3.0], atol=1e-12)


def test_a_picture_in_space_is_drawn_to_scale() -> None:
    def point(q: Any, t: Any, p: Any) -> dict[str, Any]:
        return {"point": q}

    q = np.stack([np.cos(TS), np.sin(TS), 0 * TS], axis=1)
    motion = jm.animate(point, (TS, q))
    ax: Any = motion.draw(0.0)
    sizes = [np.ptp(getattr(ax, f"get_{letter}lim")()) for letter in "xyz"]
    np.testing.assert_allclose(np.array(sizes) / sizes[0], ax._box_aspect / ax._box_aspect[0])
    ax = plt.figure().add_subplot(projection="3d")
    assert jm.animate(point, (TS, q), ax=ax).ax is ax
    with pytest.raises(ValueError, match="must be in space"):
        jm.animate(point, (TS, q), ax=plt.subplots()[1])


@pytest.fixture(scope="module")
def short() -> Animation:
    return jm.animate(rod, (TS[:6], TS[:6, None]), {"l": 1.0}, speed=1.0, fps=20.0)


def test_a_gif_lasts_as_long_as_the_motion(short: Animation, tmp_path: Path) -> None:
    path = short.save(tmp_path / "rod.gif", dpi=40.0)
    with Image.open(path) as gif:
        assert (gif.n_frames, gif.info["loop"]) == (11, 0)
        lasts = []
        for k in range(gif.n_frames):
            gif.seek(k)
            lasts.append(gif.info["duration"])
    assert lasts == [50] * 11
    assert [file.name for file in tmp_path.iterdir()] == ["rod.gif"]


def test_a_solid_moves_as_one_artist() -> None:
    def plate(q: Any, t: Any, p: Any) -> dict[str, Any]:
        c, s = jnp.cos(q[0]), jnp.sin(q[0])
        axes = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
        return {
            "plate": solid(meshes.box(), jnp.stack([q[0], 0.0]), axes),
            "plate.center": q[0] * axes[0],
        }

    motion = jm.animate(plate, (TS, TS[:, None]))
    for t in (0.0, 1.0):
        (patch,) = motion.draw(t).patches
        corners = patch.get_transform().transform(patch.get_path().vertices)
        seen = motion.ax.transData.inverted().transform(corners)
        away = np.linalg.norm(seen - [t, 0.0], axis=1)
        np.testing.assert_allclose(
            away, np.sqrt(0.5), rtol=1e-6
        )  # the outline has the corners only
    assert not [x for x in trails(motion, "o") if len(x)]  # the centre of mass is inside


@pytest.mark.parametrize(
    ("seconds", "speed"), [(2.0, 1.0), (30.0, 1.0), (0.03, 0.005), (100.0, 10.0), (0.9, 0.1)]
)
def test_the_speed_suits_the_motion(seconds: float, speed: float) -> None:
    motion = jm.animate(rod, (TS / 2 * seconds, TS[:, None]), {"l": 1.0})
    assert motion.speed == pytest.approx(speed)
    assert (len(motion.ts) - 1) / motion.fps == pytest.approx(seconds / speed)
    said = motion.draw(0.0).get_title(loc="left")
    assert ("slower" in said, "faster" in said) == (speed < 1, speed > 1)


def test_the_last_dot_that_moves_leaves_the_trail() -> None:
    def dots(q: Any, t: Any, p: Any) -> dict[str, Any]:
        here = jnp.concatenate([q, q])
        return {"b": 3 * here, "a": here, "c": jnp.zeros(2)}

    motion = jm.animate(dots, (TS, TS[:, None]))
    motion.draw(2.0)
    assert max(trails(motion), key=len)[-1] == pytest.approx([2.0, 2.0])
    assert len(trails(jm.animate(dots, (TS, TS[:, None]), trails=["a", "b"]))) == 2
    assert not trails(jm.animate(dots, (TS, TS[:, None]), trails=()), "None")
