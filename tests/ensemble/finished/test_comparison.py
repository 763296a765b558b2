"""What differs between two runs: keys, versions, statistics with intervals, bits."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from jaxmech.ensemble import compare_runs
from jaxmech.ensemble.finished.comparison import difference
from jaxmech.ensemble.statistics.moments import of_proportion
from jaxmech.ensemble.store.checksums import write_mark
from tests.ensemble.studies import STUDY, arrays, computed, resealed

STUDIED = (
    STUDY.replace("size = 20", "size = 40")
    + """
[observe]
x_end = { function = "spring.py:place", keep = "final" }

[statistics]
x = { statistic = "moments", of = "x" }
right = { statistic = "probability", of = "x_end", above = 0.0 }
"""
)


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    return computed(tmp_path_factory.mktemp("one"), STUDIED)


@pytest.mark.slow
def test_a_run_does_not_differ_from_its_copy(one, tmp_path) -> None:
    shutil.copytree(one, tmp_path / "run")
    found = compare_runs(one, tmp_path / "run")
    assert found.configuration == found.environment == found.only == ()
    assert set(found.arrays.values()) == {0}
    assert {"q", "v", "energy", "status", "x_end"} <= found.arrays.keys()
    assert all(x.difference[0] == 0 and x.apart == 0 for x in found.statistics)
    assert "the same configuration" in str(found)


@pytest.mark.slow
def test_differences_are_named(one, tmp_path, capsys) -> None:
    shifted = STUDIED.replace("low = -1.0, high = 1.0", "low = 4.0, high = 5.0", 1)
    other = computed(tmp_path, shifted.replace("seed = 3", "seed = 4"))
    facts = json.loads((other / "environment.json").read_text())
    (other / "environment.json").write_text(json.dumps({**facts, "numpy": "1.0"}))
    resealed(other)
    found = compare_runs(one, other)
    keys = {key: (then, now) for key, then, now in found.configuration}
    assert keys["seed"] == (3, 4)
    assert keys["coordinates.x.low"] == (-1.0, 4.0)
    assert any(text.startswith("numpy is ") for text in found.environment)
    assert not found.same_draws
    moments, right = found.statistics
    assert moments.name.startswith("x.mean[")
    assert moments.apart > 0
    assert moments.entries == 5
    assert right.difference[2] >= right.difference[0] >= right.difference[1]
    assert found.arrays["q"] == 40


@pytest.mark.slow
def test_an_array_that_differs_in_one_bit_is_counted(one, tmp_path) -> None:
    other = tmp_path / "run"
    shutil.copytree(one, other)
    group = zarr.open_group(other / "results.zarr", mode="r+")
    q = arrays(other)["q"]
    q[5, 2, 0] = np.nextafter(q[5, 2, 0], 9)
    group["q"][4:8] = q[4:8]
    mark = json.loads((other / "blocks" / "000001").read_text())
    write_mark(other, 1, mark["arrays"])
    differ = {name: count for name, count in compare_runs(one, other).arrays.items() if count}
    assert differ == {"q": 1}


def test_intervals_of_differences_of_proportions_are_those_of_newcombe() -> None:
    """Newcombe 1998, Table II, method 10: 56/70 - 48/80 has 0.0524 to 0.3339."""
    first, second = ((k / n, *of_proportion(k, n, 0.95, "wilson")) for k, n in ((56, 70), (48, 80)))
    value, low, high = difference(first, second)
    assert value == pytest.approx(0.2)
    assert (low, high) == (pytest.approx(0.0524, abs=5e-5), pytest.approx(0.3339, abs=5e-5))


def test_blocks_and_sizes_do_not_change_draws(one, tmp_path) -> None:
    text = STUDIED.replace("block = 4", "block = 8").replace("size = 40", "size = 44")
    found = compare_runs(one, computed(tmp_path, text))
    assert {name for name, _, _ in found.configuration} == {"size", "block"}
    assert found.environment == ()
    assert found.same_draws
