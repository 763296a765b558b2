"""Events of studies: exact first-passage times, and why trajectories ended, as stored results."""

from pathlib import Path

import numpy as np
import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import (
    Study,
    open_results,
)
from tests.ensemble.studies import arrays, computed

ROOT = Path(__file__).resolve().parents[2]
BALL = """
import jaxmech as jm

ball = jm.System(lambda q, v, t, p: 0.5 * v @ v - p["g"] * q[0], coordinates=("y",))


def height(q, v, t, p):
    return q[0]


def speed(q, v, t, p):
    return v[0]
"""

STUDY = """
model = "ball.py:ball"
size = 20
block = 8

[times]
end = 1.0
saves = 11

[steps]
per_save = 2

[coordinates]
y = { distribution = "uniform", low = 0.5, high = 6.0 }

[parameters]
g = 9.81
e = { distribution = "uniform", low = 0.5, high = 0.9 }

[observe]
speed = "ball.py:speed"

[events]
lands = { function = "ball.py:height", direction = -1, restitution = "e", keep = 2 }
fast = { of = "speed", level = -9.0, direction = -1, terminal = true }

[statistics]
when = { statistic = "first-passage", of = "lands" }
often = { statistic = "probability", of = "lands_count", above = 0.5 }
mean = { statistic = "moments", of = "lands_time" }
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    run = computed(tmp_path_factory.mktemp("balls"), STUDY, ball=BALL)
    return run, open_results(run).summary


def test_times_states_and_reasons_are_stored(done: tuple[Path, dict]) -> None:
    found = arrays(done[0])
    start, e = found["q"][:, 0, 0], found["parameter_e"]
    t = np.sqrt(2 * start / 9.81)
    lands, is_fast = t <= 1.0, start > 9.0**2 / (2 * 9.81)
    np.testing.assert_allclose(found["lands_times"][lands & ~is_fast, 0], t[lands & ~is_fast])
    again = lands & ~is_fast & (t * (1 + 2 * e) < 1.0)
    assert again.any()
    np.testing.assert_allclose(found["lands_times"][again, 1], (t * (1 + 2 * e))[again])
    np.testing.assert_allclose(found["lands_v"][again, 0, 0], -9.81 * t[again])
    assert np.isnan(found["lands_times"][~lands]).all()
    np.testing.assert_array_equal(found["stopped_by"], np.where(is_fast, 1, -1))
    np.testing.assert_allclose(found["t_end"], np.where(is_fast, 9.0 / 9.81, 1.0))
    np.testing.assert_allclose(found["v"][is_fast, -1, 0], -9.0, atol=1e-12)


def test_first_passages_are_exact(done: tuple[Path, dict]) -> None:
    found, summary = arrays(done[0]), done[1]["statistics"]
    first = found["lands_times"][:, 0]
    passed = ~np.isnan(first)
    assert summary["when"]["never"] == (~passed).sum()
    assert summary["often"]["hits"] == passed.sum()
    np.testing.assert_allclose(summary["when"]["mean"], first[passed].mean())
    np.testing.assert_allclose(summary["when"]["sd"], first[passed].std(ddof=1))
    np.testing.assert_allclose(summary["when"]["earliest"], first[passed].min())
    np.testing.assert_allclose(summary["when"]["latest"], first[passed].max())
    np.testing.assert_allclose(summary["mean"]["mean"], first[passed].mean())
    at = np.searchsorted(found["t"], first[passed])
    assert summary["when"]["passed"] == np.bincount(at, minlength=11).tolist()


COOLING = """
model = "cooling.py:body"
size = 4
block = 4

[times]
end = 1.0
saves = 3

[steps]
per_save = 32

[coordinates]
x = 0.0

[velocities]
x = 1.0
T = { distribution = "uniform", low = 300.0, high = 400.0 }

[parameters]
rate = 2.0

[events]
cold = { of = "T", level = 150.0, direction = -1, keep = 1 }

[statistics]
heat = { statistic = "moments", of = "T" }
"""
BODY = """
import jaxmech as jm

body = jm.System(
    lambda q, v, t, p: 0.5 * v[0] ** 2,
    coordinates=("x",), states=("T",), rates=lambda q, v, t, p: -p["rate"] * v[1],
)
"""


@pytest.mark.slow
def test_a_study_draws_observes_and_watches_a_state(tmp_path: Path) -> None:
    run = computed(tmp_path, COOLING, cooling=BODY)
    found = arrays(run)
    first = found["v"][:, 0, 1]
    assert ((first >= 300.0) & (first <= 400.0)).all()
    np.testing.assert_allclose(found["v"][:, -1, 1], first * np.exp(-2.0), rtol=1e-6)
    np.testing.assert_allclose(found["cold_times"][:, 0], np.log(first / 150.0) / 2.0, rtol=1e-5)
    heat = open_results(run).statistics["heat"]["mean"]
    np.testing.assert_allclose(heat, found["v"][:, :, 1].mean(0))


def test_the_example() -> None:
    study = read(ROOT / "configs/first_passage.toml", Study)
    assert study.events["passes"].terminal
