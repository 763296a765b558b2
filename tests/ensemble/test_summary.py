"""The summary: counts, worst values and quantiles of what is stored."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, Times, Uniform, run_study
from jaxmech.ensemble.summary import failed
from tests.ensemble.studies import PENDULUM, STUDY, arrays, write_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    for name, text in (
        ("half", STUDY.replace("limit = 2.0", "limit = 0.5")),
        ("none", STUDY.replace("limit = 2.0", "limit = -1.0")),
        ("pendulum", PENDULUM),
    ):
        run_study(read(write_study(path, text), Study), path / name, folder=path)
    return path


def test_failures_are_counted_and_left_out(folder) -> None:
    summary = json.loads((folder / "half" / "summary.json").read_text())
    found = arrays(folder / "half")
    good = found["status"] == 0
    assert summary["done"] == summary["size"] == 20
    assert summary["status"]["OK"]["count"] == good.sum()
    assert summary["status"]["NONFINITE"]["count"] == failed(summary) == 20 - good.sum()
    assert "NaN" in summary["status"]["NONFINITE"]["message"]
    bands = summary["quantiles"]["coordinates"]["x"]
    assert summary["quantiles"]["times"] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert np.allclose(
        bands[-1], np.quantile(found["q"][good, -1, 0], [0.05, 0.25, 0.5, 0.75, 0.95])
    )


def test_the_worst_values_are_those_of_the_good_trajectories(folder) -> None:
    summary = json.loads((folder / "pendulum" / "summary.json").read_text())
    found = arrays(folder / "pendulum")
    assert summary["worst"]["position_residual"] == found["position_residual"].max()
    assert summary["worst"]["velocity_residual"] == found["velocity_residual"].max()
    assert summary["worst"]["energy_drift"] == found["energy_drift"].max()
    assert summary["smallest_rank"] == 1
    drift = np.abs(found["energy"] - found["energy"][:, :1]).max()
    assert summary["worst"]["energy_drift"] == pytest.approx(drift)


def test_a_run_without_a_good_trajectory_has_a_summary(folder) -> None:
    summary = json.loads((folder / "none" / "summary.json").read_text())
    assert summary["status"]["OK"]["count"] == 0
    assert summary["worst"] == {
        "position_residual": None,
        "velocity_residual": None,
        "energy_drift": None,
        "integration_error": None,
    }
    assert summary["smallest_rank"] is None
    assert "NONFINITE" in (folder / "none" / "summary.txt").read_text()


@pytest.mark.slow
def test_motions_that_begin_at_nan_are_not_asked_for_shorter_steps(tmp_path: Path) -> None:
    def state(start: Any, p: Any) -> Any:
        return jnp.sqrt(start["x"])[None], jnp.zeros(1)

    mass = jm.System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("x",))
    study = Study(
        model=jm.models.Model("mass", "a mass", mass, {}, {"x": 1.0}, state),
        size=8, times=Times(end=1.0, saves=2), steps=jm.FixedSteps(per_save=1),
        start={"x": Uniform(-2.0, -1.0)},
    )  # fmt: skip
    message = run_study(study, tmp_path / "run")["status"]["NONFINITE"]["message"]
    assert "the initial state is infinite or NaN" in message
