"""Studies over several recorded inputs: each trajectory has the file of its number."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.config.errors import StoppedError, StudyError
from jaxmech.ensemble import (
    Cluster,
    Discrete,
    Fixed,
    RecordedInput,
    Study,
    Times,
    Uniform,
    open_results,
    replay,
    run_study,
)
from jaxmech.ensemble.blocks.estimate import slice_of
from jaxmech.ensemble.blocks.plan import planned
from tests.ensemble.studies import CAR

NAMES = ("a", "b", "c")


def of(file: str | tuple[str, ...], interpolation: Any = "linear") -> RecordedInput:
    return RecordedInput(file=file, column="height", interpolation=interpolation)


ROAD = of("road_*.csv")
SETTINGS: dict[str, Any] = {
    "model": "car.py:car",
    "size": 12,
    "block": 4,
    "times": Times(end=1.9, saves=5),
    "steps": jm.FixedSteps(8),
    "coordinates": {"height": Fixed(0.0)},
}
PARAMETERS = {"m": Fixed(1.0), "c": Fixed(0.0), "k": Uniform(30.0, 50.0)}


def write(path: Path, times: np.ndarray, heights: np.ndarray, title: str = "height") -> None:
    rows = np.stack([times, heights], axis=1)
    np.savetxt(path, rows, delimiter=",", header=f"t,{title}", comments="")


def rough(folder: Path) -> None:
    """Roads of other lengths and rates."""
    rng = np.random.default_rng(0)
    for name, count, spacing in zip(NAMES, (41, 101, 30), (0.05, 0.02, 0.1), strict=True):
        heights = 0.02 * rng.normal(size=count)
        write(folder / f"road_{name}.csv", spacing * np.arange(count), heights)


def study_of(road: RecordedInput = ROAD, **changed: Any) -> Study:
    parameters = {**PARAMETERS, **changed.pop("parameters", {})}
    return Study(**{**SETTINGS, **changed}, parameters=parameters, inputs={"road": road})


def computed(folder: Path, out: str, road: RecordedInput = ROAD, **changed: Any) -> Path:
    run_study(study_of(road, **changed), folder / out, folder=folder)
    return folder / out


def array(run: Path, name: str) -> np.ndarray:
    return np.asarray(open_results(run).group[name][...])  # type: ignore[index]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "car.py").write_text(CAR)
    rough(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the study over all roads, not to be changed."""
    home = tmp_path_factory.mktemp("whole")
    (home / "car.py").write_text(CAR)
    rough(home)
    return computed(home, "run")


def test_a_spring_ends_where_the_height_of_its_road_takes_it(folder: Path) -> None:
    """From rest at 0 over a step of height h: q(t) = h (1 - cos(t sqrt(k / m)))."""
    heights = np.array([0.1, -0.2, 0.3])
    for name, height in zip(NAMES, heights, strict=True):
        write(folder / f"road_{name}.csv", np.array([0.0, 2.0]), np.full(2, height))
    run = computed(
        folder, "run", steps=jm.FixedSteps(64), parameters={"road": Discrete((2.0, 0.0))}
    )
    numbers, k = array(run, "parameter_road").astype(int), array(run, "parameter_k")
    assert {*numbers.tolist()} == {0, 2}
    expected = heights[numbers] * (1 - np.cos(1.9 * np.sqrt(k)))
    np.testing.assert_allclose(array(run, "q")[:, -1, 0], expected, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("interpolation", "names"), [("linear", NAMES[1:]), ("cubic", NAMES[:1])])
def test_the_roads_of_one_study_are_those_of_several(
    folder: Path, whole: Path, interpolation: Any, names: tuple[str, ...]
) -> None:
    is_whole = interpolation == "linear"
    run = whole if is_whole else computed(folder, "run", of("road_*.csv", interpolation))
    numbers = array(run, "parameter_road")
    assert {*numbers.tolist()} == {0.0, 1.0, 2.0}  # drawn without being asked for
    for name in names:
        number = NAMES.index(name)
        alone = computed(folder, f"run_{name}", of(f"road_{name}.csv", interpolation))
        rows = numbers == number
        assert array(run, "q")[rows].tobytes() == array(alone, "q")[rows].tobytes()
    assert np.abs(np.diff(array(run, "q")[:, -1, 0])).min() > 0


@pytest.mark.slow
def test_samples_at_uneven_times_are_those_of_another_study(folder: Path) -> None:
    write(folder / "road_b.csv", 2.0 * np.linspace(0, 1, 60) ** 2, np.arange(60) / 1000)
    run, alone = computed(folder, "run"), computed(folder, "alone", of("road_b.csv"))
    rows = array(run, "parameter_road") == 1
    np.testing.assert_allclose(array(run, "q")[rows], array(alone, "q")[rows], atol=1e-14)


def test_an_interruption_does_not_change_the_results(folder: Path, whole: Path) -> None:
    with pytest.raises(StoppedError):
        stopped_after_a_block(folder)
    again = computed(folder, "part")  # continued
    assert array(whole, "q").tobytes() == array(again, "q").tobytes()
    assert all(replay(whole, 7, study_of(), folder).compared.values())


def stopped_after_a_block(folder: Path) -> None:
    asked = iter([False, True, True, True])
    study = Study(**SETTINGS, parameters=PARAMETERS, inputs={"road": ROAD})
    run_study(study, folder / "part", folder=folder, stop=lambda: next(asked))


def test_a_run_keeps_its_files_and_notices_a_changed_one(folder: Path, whole: Path) -> None:
    run = folder / "run"
    shutil.copytree(whole, run)
    assert open_results(run).config["inputs"]["road"]["file"] == [f"road_{x}.csv" for x in NAMES]
    attributes = open_results(run).group["parameter_road"].attrs
    assert attributes["flag_meanings"] == "road_a.csv road_b.csv road_c.csv"
    assert "0 road_a.csv, 1 road_b.csv, 2 road_c.csv" in (run / "summary.txt").read_text()
    write(folder / "road_b.csv", np.array([0.0, 2.0]), np.zeros(2))
    with pytest.raises(Exception, match=r"drawn for input road from road_b.csv"):
        computed(folder, "run")
    rough(folder)
    write(folder / "road_d.csv", np.array([0.0, 2.0]), np.zeros(2))
    with pytest.raises(Exception, match=r"inputs.road.file"):
        computed(folder, "run")


@pytest.mark.slow
def test_workers_of_a_cluster_read_the_same_roads(folder: Path, whole: Path) -> None:
    away = computed(folder, "away", cluster=Cluster(scheduler="local:1"))
    assert array(whole, "q").tobytes() == array(away, "q").tobytes()


@pytest.mark.slow
def test_two_inputs_share_the_number_of_their_file(folder: Path, whole: Path) -> None:
    car = CAR.replace('p["road"](t)', '(p["road"](t) + p["left"](t)) / 2')
    (folder / "car.py").write_text(car)
    study = Study(**SETTINGS, parameters=PARAMETERS, inputs={"road": ROAD, "left": ROAD})
    run_study(study, folder / "run", folder=folder)
    np.testing.assert_allclose(array(folder / "run", "q"), array(whole, "q"))


MODEL = """
import jax.numpy as jnp

params = {"m": 1.0, "c": 1.0, "k": 40.0}
model = jm.models.Model("car", "a car", car, params, {}, lambda s, p: (jnp.zeros(1), jnp.zeros(1)))
"""


@pytest.mark.slow
def test_a_model_has_the_number_of_a_file_among_its_parameters(folder: Path) -> None:
    (folder / "car.py").write_text(CAR + MODEL)
    settings = {"model": "car.py:model", "coordinates": {}}
    run = computed(folder, "run", **settings, parameters={"road": Fixed(1.0)})
    assert array(run, "parameter_road") == 1.0
    assert np.abs(array(run, "q")).max() > 1e-3
    with pytest.raises(StudyError, match=r"number` must have another name: k is a parameter"):
        computed(folder, "other", replace(ROAD, number="k"), **settings)


def test_slices_of_a_block_are_smaller_with_many_samples(folder: Path) -> None:
    study = Study(**{**SETTINGS, "block": 1024}, parameters=PARAMETERS, inputs={"road": ROAD})
    inputs = planned(study, folder).subject.inputs
    assert inputs.ends == 101  # of the longest road
    assert slice_of(study, 1, ends=inputs.ends) == 1024
    assert slice_of(study, 1, ends=5000) == 64
