"""Modes as motions."""

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pytest

import jaxmech as jm
from tests.plot.test_animation import shown

MODEL = jm.models.double_pendulum()
FAST, SLOW = (np.sqrt(9.81 * (2 + s * np.sqrt(2))) for s in (1, -1))  # of equal links [1/s]


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def hanging() -> jm.analysis.Equilibrium:
    return jm.analysis.equilibrium(MODEL.system, [0.0, -1.0, 0.0, -2.0], MODEL.params)


@pytest.fixture(scope="module")
def upright() -> jm.analysis.Equilibrium:
    return jm.analysis.equilibrium(MODEL.system, [0.0, 1.0, 0.0, 2.0], MODEL.params)


def test_a_mode_keeps_the_rods_and_swings_as_far_as_asked(hanging: jm.analysis.Equilibrium) -> None:
    motion = jm.animate(MODEL, hanging, mode=1, amplitude=0.02)
    title = motion.draw(0.0).get_title(loc="left")
    assert title.endswith(f"{FAST / 2 / np.pi:.4g} Hz, damping ratio 0")
    assert motion.ts[-1] == pytest.approx(2 * np.pi / FAST)
    assert (len(motion.ts) - 1) / motion.fps == pytest.approx(2.0)
    reach = []
    for t in motion.ts:
        motion.draw(t)
        rods = np.array(shown(motion))  # the pivot and both masses
        np.testing.assert_allclose(np.linalg.norm(np.diff(rods, axis=0), axis=1), 1.0, atol=2e-3)
        reach.append(np.abs(rods[:, 0]).max())
    assert max(reach) == pytest.approx(0.02 * 2.0, rel=0.03)  # of a length of two metres


def test_a_mode_without_oscillation_grows(upright: jm.analysis.Equilibrium) -> None:
    motion = jm.animate(MODEL, upright, mode=0)
    said = motion.draw(0.0).get_title(loc="left")
    assert "per second" in said
    assert "Hz" not in said
