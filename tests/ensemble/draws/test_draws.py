"""Draws: reproducible, independent of everything but seed and name, and checked."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from jaxmech.config.errors import StudyError
from jaxmech.config.load import Subject, load
from jaxmech.ensemble import (
    Fixed,
    Moments,
    Normal,
    Observed,
    Sampling,
    Study,
    StudyEvent,
    Times,
    Uniform,
)
from jaxmech.ensemble.draws import Sampler
from jaxmech.ensemble.plan import planned
from jaxmech.models import Model
from jaxmech.system import System
from tests.ensemble.studies import write_study

ANGLE = Uniform(-3.0, 3.0)
SCATTER = Normal(sd=0.02, relative=True)
UNIT = Uniform(0.0, 1.0)
SOBOL = Sampling(design="sobol")


def study(model: str = "double_pendulum", size: int = 50, **sections: Any) -> Study:
    return Study(model=model, size=size, times=Times(end=1.0), **sections)


def drawn(study: Study) -> dict[str, np.ndarray]:
    subject = load(study.model, study.model_options)
    rows = Sampler(study, subject).rows(0, study.size)
    return {f"{v.section}.{v.name}": v.values for v in rows}


def test_a_variable_depends_on_seed_and_name_alone() -> None:
    one = drawn(study(start={"theta1": ANGLE}))["start.theta1"]
    more = drawn(study(start={"theta2": ANGLE, "theta1": ANGLE}, parameters={"m1": SCATTER}))
    assert np.array_equal(one, more["start.theta1"])
    assert not np.array_equal(one, more["start.theta2"])
    other = drawn(study(start={"theta1": ANGLE}, seed=1))["start.theta1"]
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("rule", [ANGLE, SCATTER])
@pytest.mark.parametrize("sampling", [Sampling(), SOBOL])
def test_a_longer_study_begins_with_the_shorter_one(rule: Any, sampling: Sampling) -> None:
    short = drawn(study(start={"theta1": rule}, sampling=sampling))["start.theta1"]
    long = drawn(study(start={"theta1": rule}, sampling=sampling, size=333))["start.theta1"]
    assert np.array_equal(long[:50], short)


def test_draws_do_not_change_between_releases() -> None:
    """A release that draws other numbers would silently change every study."""
    values = drawn(study(start={"theta1": ANGLE}, size=2))
    assert values["start.theta1"].tolist() == [0.6554983647154895, 2.4869512120942687]
    values = drawn(study(start={"theta2": UNIT}, sampling=SOBOL, size=2))
    assert values["start.theta2"].tolist() == [0.2553014028817415, 0.8359932852908969]


def test_values_keep_their_places_in_arrays_of_any_shape() -> None:
    def plain(q, v, t, p):
        return 0.5 * v @ v

    system = System(plain, coordinates=("x",))
    tensor = np.arange(6.0).reshape(2, 3)
    model = Model("m", "", system, {"I": tensor}, {}, lambda start, p: (np.zeros(1), np.zeros(1)))
    rules = {"I": Normal(sd=0.0), "I[1,0]": Fixed(9.0), "I[0, 2]": Uniform(20.0, 21.0)}
    five = Sampler(study(size=5, parameters=rules), Subject("m", system, model)).rows(0, 5)
    values = five[0].values
    assert np.array_equal(values[:, 1], np.tile([9.0, 4.0, 5.0], (5, 1)))
    assert np.array_equal(values[:, 0, :2], np.tile([0.0, 1.0], (5, 1)))
    assert len(set(values[:, 0, 2])) == 5


def test_defaults_of_the_model_are_kept() -> None:
    values = drawn(study(start={"theta1": ANGLE}, parameters={"g": Fixed(1.62)}))
    assert values["start.theta2"] == 2.5
    assert values["parameters.m1"] == 1.0
    assert values["parameters.g"] == 1.62


def test_every_entry_of_an_array_is_drawn_on_its_own() -> None:
    rules = {"m": SCATTER, "m[1]": Fixed(7.0), "l[0]": Uniform(2.0, 3.0)}
    values = drawn(study("chain", model_options={"links": 3}, parameters=rules))
    m, rod = values["parameters.m"], values["parameters.l"]
    assert m.shape == rod.shape == (50, 3)
    assert np.all(m[:, 1] == 7.0)
    assert abs(np.corrcoef(m[:, 0], m[:, 2])[0, 1]) < 0.4
    assert np.all((rod[:, 0] >= 2) & (rod[:, 0] <= 3))
    assert np.all(rod[:, 1:] == 1.0)
    single = drawn(study("chain", model_options={"links": 3}, parameters={"m[2]": SCATTER}))
    assert np.array_equal(single["parameters.m"][:, 2], m[:, 2])


def test_a_list_gives_an_array_its_entries() -> None:
    rules = {"m": Fixed([1.0, 2.0, 3.0])}
    values = drawn(study("chain", model_options={"links": 3}, parameters=rules))
    assert values["parameters.m"].tolist() == [1.0, 2.0, 3.0]


def test_sobol_variables_share_one_sequence() -> None:
    rules = {"theta1": UNIT, "theta2": Uniform(-2.0, 2.0)}
    values = drawn(study(start=rules, sampling=SOBOL, size=256))
    x, y = values["start.theta1"], (values["start.theta2"] + 2) / 4
    cells = np.histogram2d(x, y, bins=16, range=[[0, 1], [0, 1]])[0]
    assert np.all(cells == 1)  # what 256 random points would never do
    assert kstest(x, "uniform").statistic < 0.01


def test_sobol_draws_any_size_without_a_warning() -> None:
    for size in (1, 2, 3, 100):
        values = drawn(study(start={"theta1": UNIT}, sampling=SOBOL, size=size))
        assert len(values["start.theta1"]) == size


def spring(tmp_path, **sections: Any) -> dict[str, np.ndarray]:
    write_study(tmp_path)
    wanted = study(f"{tmp_path / 'spring.py'}:spring", size=4, **sections)
    return drawn(wanted)


def test_a_bare_system_takes_what_is_given(tmp_path) -> None:
    values = spring(tmp_path, coordinates={"x": ANGLE}, parameters={"m": Fixed([1.0, 2.0])})
    assert values["coordinates.x"].shape == (4,)
    assert values["parameters.m"].tolist() == [1.0, 2.0]
    assert "velocities.x" not in values


def test_names_that_are_taken_or_of_nothing_are_told_together() -> None:
    """Also that of an array of drawn values, which only a run folder has."""
    speed = Observed(lambda q, v, t, p: v @ v)
    wrong = Study(
        model="pendulum", size=4, times=Times(end=1.0), start={"theta": Uniform(-1.0, 1.0)},
        observe={"energy": speed, "start_theta": speed},
        events={"high": StudyEvent(of="x9")}, statistics={"mean": Moments(of="heat")},
    )  # fmt: skip
    with pytest.raises(StudyError) as caught:
        planned(wrong)
    assert [problem.key for problem in caught.value.problems] == [
        ("observe", "energy"), ("observe", "start_theta"), ("events", "high", "of"),
        ("statistics", "mean", "of"),
    ]  # fmt: skip
