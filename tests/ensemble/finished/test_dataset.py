"""Studies from Python: datasets that are read lazily."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray

import jaxmech.ensemble as je
from tests.ensemble.studies import arrays, killed


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
