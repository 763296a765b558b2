"""An oscillator under a pulse, whose probabilities of failure are known by quadrature."""

import json
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import pytest

import jaxmech as jm
from jaxmech.config import load
from jaxmech.config.errors import FolderError, StoppedError
from jaxmech.ensemble import (
    Failure,
    FailureProbability,
    Normal,
    Study,
    Times,
    failure_probability,
)
from jaxmech.integrate import FixedSteps
from tests.ensemble.failure.problems import LOADS, pulse_study

RARE = 1.51444067446e-8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pulse")


@pytest.fixture(scope="module")
def result(folder: Path) -> FailureProbability:
    return failure_probability(pulse_study(folder), folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "sd"), [(1.0, 0.2), (0.6, 0.1)])
def test_the_probability_is_that_by_quadrature(mean: float, sd: float, tmp_path: Path) -> None:
    exact = LOADS[mean, sd]
    study = pulse_study(tmp_path, mean, sd)
    result = failure_probability(study, folder=tmp_path)
    assert result.interval[0] < exact < result.interval[1]
    assert result.coefficient_of_variation <= 0.05
    assert not result.doubts


def test_a_probability_of_1e_8_takes_few_trajectories(
    result: FailureProbability, folder: Path
) -> None:
    by_method = {x.method: x.probability for x in result.estimates}
    assert result.method == "importance"
    assert result.interval[0] < RARE < result.interval[1]
    assert result.trajectories <= 20_000
    assert by_method["form"] == pytest.approx(1.562e-8, rel=2e-3)
    point = result.design_points[0]
    assert sum(point.importance.values()) == pytest.approx(1.0)
    assert max(point.importance, key=lambda name: point.importance[name]) == "parameters.r"
    # The motion of the design point just fails.
    subject = load("pulse.py:pulse", {}, folder)
    unload = jm.Event(
        lambda q, v, t, p: t - p["t1"],
        direction=1,
        transition=jm.Transition(lambda q, v, t, p: (q, v.at[1].set(0.0))),
    )
    ts = jnp.linspace(0.0, 6.0, 601)
    sol = jm.simulate(subject.system, point.q, point.v, ts, point.params, events=(unload,))
    assert float(jnp.abs(sol["x"]).max()) == pytest.approx(
        3 * point.variables["parameters.r"], 1e-3
    )


def test_a_result_is_stored_beside_what_it_is_of(tmp_path: Path) -> None:
    study = Study(
        model="pendulum", size=64, block=128, times=Times(end=1.0, saves=5),
        steps=FixedSteps(per_save=2), start={"theta": Normal(sd=0.3, mean=0.0)},
        failure=Failure(of="x1", above=0.8, method="importance", coefficient_of_variation=0.1),
    )  # fmt: skip
    calls = iter(range(5))
    with pytest.raises(StoppedError):
        failure_probability(study, tmp_path, stop=lambda: next(calls, None) is None)
    result = failure_probability(study, tmp_path)
    stored = json.loads((tmp_path / "failure.json").read_text())
    assert stored["probability"] == result.probability
    again = failure_probability(replace(study, size=128), tmp_path)  # which does not matter
    assert again.probability == result.probability
    with pytest.raises(FolderError, match="different configuration: `seed` is 0 there and 1 here"):
        failure_probability(replace(study, seed=1), tmp_path)
