"""A study without `per_save`: the number is chosen once from its draws, and stored."""

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, open_results
from jaxmech.ensemble.plan import with_stored_sizes
from tests.ensemble.studies import arrays, computed, same_bits, write_study

TEXT = """
model = "pendulum"
size = 6
block = 2

[times]
end = 2.0
saves = 5

[start]
theta = { distribution = "uniform", low = 0.1, high = 2.5 }
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return computed(tmp_path_factory.mktemp("whole"), TEXT)


def per_save(run: Path) -> int:
    return tomllib.loads((run / "config.toml").read_text())["steps"]["per_save"]


@pytest.mark.slow
def test_steps_are_chosen_and_stored(whole) -> None:
    found = arrays(whole)
    assert np.array_equal(found["status"], np.zeros(6))
    assert per_save(whole) > 8
    assert 0 < found["integration_error"].max() < 1e-4
    assert found["energy_drift"].max() < 1e-4
    text = (whole / "summary.txt").read_text()
    assert "integration error" in text
    assert "steps.per_save" not in text


@pytest.mark.slow
def test_a_continued_run_keeps_its_steps(whole, tmp_path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "blocks" / "000001").unlink()
    computed(tmp_path, TEXT)
    assert same_bits(whole, tmp_path / "run")


def test_a_given_number_overrides_the_stored_one(whole, tmp_path) -> None:
    study = read(write_study(tmp_path, TEXT), Study)
    assert with_stored_sizes(study, whole).steps.per_save == per_save(whole)
    assert with_stored_sizes(study, tmp_path).steps.per_save is None
    other = replace(study, steps=replace(study.steps, per_save=4))
    assert with_stored_sizes(other, whole).steps == other.steps


@pytest.mark.slow
def test_a_step_that_is_too_coarse_is_reported(tmp_path) -> None:
    text = TEXT + "\n[steps]\nper_save = 4\n"
    text = (computed(tmp_path, text) / "summary.txt").read_text()
    assert "above 0.001" in text
    assert "`steps.per_save`" in text


PUSHED = """
import jax.numpy as jnp, jaxmech as jm

def push(q, v, t, p):
    return jnp.where(t < 0.5, 1.0, 0.0)[None]

system = jm.System(lambda q, v, t, p: p["m"] * v @ v / 2, force=push, coordinates=("x",))
"""
PUSHES = """
model = "pushed.py:system"
size = 4
times = { end = 1.0, saves = 3 }
parameters.m = { distribution = "uniform", low = 1.0, high = 2.0 }
coordinates.x = 0.0
velocities.x = 0.0
"""


@pytest.mark.slow
def test_steps_end_where_a_force_jumps_at_a_saved_time(tmp_path: Path) -> None:
    run = computed(tmp_path, PUSHES, pushed=PUSHED)
    found = arrays(run)
    np.testing.assert_allclose(found["q"][:, -1, 0], 0.375 / found["parameter_m"], rtol=1e-12)
    assert tomllib.loads((run / "config.toml").read_text())["steps"]["times"] == [0.5]
    assert computed(tmp_path, PUSHES) == run  # with the stored steps


WAVES = """
model = "waves.py:free"
size = 4

[times]
end = 1.0
saves = 2

[parameters]
m = 1.0

[coordinates]
x = 0.11

[velocities]
x = { distribution = "uniform", low = 0.9, high = 1.1 }

[observe]
height = "waves.py:height"

"""
FREE = """
import jax.numpy as jnp, jaxmech as jm
free = jm.System(lambda q, v, t, p: 0.5 * p['m'] * v @ v, coordinates=("x",))
def height(q, v, t, p):
    return jnp.sin(20 * jnp.pi * q[0])
"""
NODES = '[events]\nnode = { of = "height", level = 0.0 }\n'
NODES += '[statistics]\nnodes = { statistic = "moments", of = "node_count" }\n'


@pytest.mark.slow
def test_steps_are_short_enough_for_events_that_the_motion_does_not_show(tmp_path: Path) -> None:
    """A body that moves uniformly needs no short steps, but a wave on its path does."""
    run = computed(tmp_path, WAVES + NODES, waves=FREE)
    assert open_results(run).summary["with_missed_events"] == 0
    found = arrays(run)
    exact = np.floor(20 * (0.11 + found["velocity_x"])) - 2
    np.testing.assert_array_equal(found["node_count"], exact)


@pytest.mark.slow
def test_events_that_given_steps_miss_are_counted(tmp_path: Path) -> None:
    for store in ("all", "statistics"):
        text = f'store = "{store}"\n{WAVES}{NODES}[steps]\nper_save = 4\n'
        computed(tmp_path, text, store, waves=FREE)
        assert open_results(tmp_path / store).summary["with_missed_events"] == 4
        text = (tmp_path / store / "summary.txt").read_text()
        assert "events missed in too long steps in 4 trajectories" in text
    assert (arrays(tmp_path / "all")["missed_events"] > 10).all()


ADAPTIVE = """
[events]
lowest = { of = "x1" }

[statistics]
when = { statistic = "first-passage", of = "lowest" }

[method]
name = "DormandPrince5"

[steps]
name = "Adaptive"
rtol = 1e-8
atol = 1e-8
"""


@pytest.mark.slow
def test_adaptive_steps_keep_the_energy_to_their_tolerance(tmp_path: Path) -> None:
    """So does a method for stiff systems, in other blocks, with the same times of events."""
    text = TEXT + ADAPTIVE
    stiff = text.replace("DormandPrince5", "Rodas5P").replace("block = 2", "block = 3")
    run, other = computed(tmp_path, text), computed(tmp_path, stiff, "stiff")
    one, two = arrays(run), arrays(other)
    assert not one["status"].any()
    assert not two["status"].any()
    assert 0 < one["energy_drift"].max() < 1e-5
    assert (one["lowest_count"] > 0).all()
    assert "first-passage" in (run / "config.toml").read_text()
    np.testing.assert_allclose(two["q"], one["q"], atol=1e-5)
    np.testing.assert_allclose(two["lowest_times"], one["lowest_times"], atol=1e-5)
