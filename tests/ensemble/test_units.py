"""Units of observed quantities, coordinates and events in the results of a study."""

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import xarray

import jaxmech.ensemble as je
from tests.ensemble.studies import computed

STUDY = """
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
    return computed(tmp_path_factory.mktemp("units"), STUDY)


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
