"""Runs as datasets that are read lazily: their names and units."""

import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray

import jaxmech.ensemble as je
from tests.ensemble.studies import arrays, computed, killed


def study(**more) -> je.Study:
    return je.Study(
        model="pendulum",
        size=12,
        block=4,
        times=je.Times(end=0.5, saves=6),
        start={"theta": je.Uniform(low=-1.0, high=1.0)},
        observe={"height": je.Observed(lambda q, v, t, p: q[1])},
        statistics={
            "height": je.Moments(of="height"),
            "high": je.Probability(of="height", above=-0.8),
        },
        **more,
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> xarray.Dataset:
    run = tmp_path_factory.mktemp("run") / "run"
    je.run_study(study(), run)
    return je.open(run)


@pytest.mark.slow
def test_it_holds_arrays_and_statistics(found) -> None:
    assert dict(found.q.sizes) == {"trajectory": 12, "time": 6, "coordinate": 2}
    assert found.height_mean.dims == ("time",)
    assert found.height_mean.values == pytest.approx(found.height.mean("trajectory").values)
    assert float(found.high_probability) == (found.height > -0.8).any("time").mean()
    assert "statistics" not in found  # the states of the blocks, which say nothing by themselves
    assert (found.status == 0).all()


@pytest.mark.slow
def test_nothing_is_read_before_it_is_needed(found, monkeypatch) -> None:
    opened = list[str]()
    plain = Path.open

    def noted(self, *args, **kwargs):
        opened.append(str(self))
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", noted)
    run = found.attrs["run"]
    again = je.open(run)
    lazy = again.q[5:6]
    assert not [name for name in opened if "/q/c/" in name]
    assert lazy.values.shape == (1, 6, 2)
    assert {name for name in opened if "/q/c/" in name} == {f"{run}/results.zarr/q/c/1/0/0"}


def test_an_unfinished_run_is_opened(found, tmp_path) -> None:
    out = tmp_path / "run"
    shutil.copytree(found.attrs["run"], out)
    killed(out, 1)
    for array in (out / "results.zarr").iterdir():
        shutil.rmtree(array / "c" / "1", ignore_errors=True)
    status = je.open(out).status.values
    assert status.tolist()[4:8] == [-1] * 4 or np.array_equal(status, arrays(out)["status"])


def test_a_chunk_is_not_read_as_numbers_that_were_not_computed(found, tmp_path) -> None:
    shutil.copytree(found.attrs["run"], tmp_path / "run")
    chunk = tmp_path / "run/results.zarr/q/c/1/0/0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    dataset = je.open(tmp_path / "run")
    assert np.isfinite(dataset.q[:4].values).all()
    with pytest.raises(ValueError, match="checksum"):
        dataset.q.values  # noqa: B018


WITH_UNITS = """
model = "pendulum"
size = 8

[times]
end = 0.5
saves = 3

[steps]
per_save = 5

[start]
theta = { distribution = "uniform", low = -1.0, high = 1.0 }

[observe]
height = { function = "spring.py:place", keep = "max", unit = "cm" }
bare = "spring.py:place"

[events]
lowest = { of = "x1" }

[statistics]
mean = { statistic = "moments", of = "height" }
bands = { statistic = "quantiles", of = "x1" }
bins = { statistic = "histogram", of = "height", bins = 4 }
none = { statistic = "moments", of = "bare" }
often = { statistic = "probability", of = "height", above = 0.5 }
when = { statistic = "first-passage", of = "lowest" }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return computed(tmp_path_factory.mktemp("units"), WITH_UNITS)


def test_arrays_have_units(run: Path) -> None:
    found: xarray.Dataset = je.open(run)
    units = {str(name): array.attrs.get("units") for name, array in found.variables.items()}
    assert (units["height"], units["bare"]) == ("cm", None)
    assert (units["mean_mean"], units["mean_max"], units["mean_count"]) == ("cm", "cm", None)
    assert (units["bands_quantiles"], units["bands_at"]) == ("m", None)  # that of the coordinate
    assert (units["bins_edges"], units["bins_counts"]) == ("cm", None)
    assert (units["none_mean"], units["often_probability"]) == (None, None)
    assert (units["lowest_times"], units["t_end"], units["when_mean"]) == ("s", "s", "s")


def test_axes_and_the_summary_have_them(run: Path) -> None:
    results = je.open_results(run)
    labels = {name: [ax.get_xlabel(), ax.get_ylabel()] for name, ax in results.plot().axes.items()}
    plt.close("all")
    assert labels["bands"] == ["t [s]", "quantiles of x1 [m]"]
    assert labels["bins"][0] == "height [cm]"
    assert "mean [cm]" in (run / "summary.txt").read_text()


ROBOT = """
import jaxmech as jm

robot = jm.System(
    lambda q, v, t, p: 0.5 * p["mass.left/arm"] * v @ v,
    constraints=[jm.Holonomic(lambda q, t, p: q[:1] - q[1:], name="left/tie")],
    coordinates=("left/x", "right/x"),
)
"""
OF_ROBOT = """
model = "spring.py:robot"
size = 3
save = ["q", "multipliers"]

[times]
end = 1.0
saves = 2

[steps]
per_save = 1

[coordinates]
"left/x" = { distribution = "uniform", low = 0.0, high = 1.0 }
"right/x" = 0.5

[parameters]
"mass.left/arm" = 2.0

[statistics]
pull = { statistic = "moments", of = "multipliers_left.tie" }
"""


def test_slashes_of_a_model_are_points_in_its_arrays(tmp_path: Path) -> None:
    found = je.open(computed(tmp_path, OF_ROBOT, spring=ROBOT))
    assert found["coordinate_left.x"].long_name == "initial coordinate left/x"
    assert float(found["parameter_mass.left.arm"]) == 2.0
    assert found["multipliers_left.tie"].shape == (3, 2, 1)
    assert found.coordinate.values.tolist() == ["left/x", "right/x"]
    assert "pull_mean" in found


def test_a_statistic_does_not_hide_an_array(tmp_path: Path) -> None:
    study = je.Study(
        model="pendulum",
        size=4,
        times=je.Times(end=1.0, saves=3),
        events={"lowest": je.StudyEvent(of="x1")},
        statistics={"lowest": je.FirstPassage(of="lowest")},
    )
    je.run_study(study, tmp_path / "run")
    found = je.open(tmp_path / "run")
    assert found.lowest_count.dims == ("trajectory",)
    assert int(found.statistic_lowest_count) == 4
    assert int(found.lowest_never) == 4 - int((found.lowest_count > 0).sum())
