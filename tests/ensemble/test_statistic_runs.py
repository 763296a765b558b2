"""Studies that store statistics: their values, bit-identical however the work is divided."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps
from jaxmech.config.errors import FolderError
from jaxmech.config.toml import read
from jaxmech.ensemble import (
    Observed,
    Study,
    Times,
    Uniform,
    open_results,
    run_study,
)
from jaxmech.ensemble.store import StudyFolder
from tests.ensemble.studies import STUDY, arrays, computed, killed, same_bits

CONFIGS = Path(__file__).parents[2] / "configs"

FUNCTIONS = """
import jax.numpy as jnp

def stretch(q, v, t, p):
    return jnp.abs(q[0])

def pair(q, v, t, p):
    return jnp.stack([q[0], v[0]])

def three(q, v, t):
    return q[0]

def work(q, v, t, p, reactions):
    return reactions.qdd @ v
"""
OBSERVED = (
    STUDY
    + """
[observe]
stretch = "of.py:stretch"
widest = { function = "of.py:stretch", keep = "max" }
both = "of.py:pair"

[events]
wider = { of = "stretch", level = 0.5, direction = 1 }

[statistics]
wide = { statistic = "probability", of = "widest", above = 0.5 }
when = { statistic = "first-passage", of = "wider" }
x = { statistic = "moments", of = "x" }
both = { statistic = "moments", of = "both" }
band = { statistic = "quantiles", of = "stretch", at = [0.5], bins = 64 }
"""
)
ONLY = OBSERVED.replace("block = 4", 'block = 4\nstore = "statistics"')


def observed(folder: Path, text: str = OBSERVED) -> Path:
    return computed(folder, text, of=FUNCTIONS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A finished run that stores trajectories and statistics."""
    return observed(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def only(tmp_path_factory) -> Path:
    """The same study, storing only statistics."""
    return observed(tmp_path_factory.mktemp("only"), ONLY)


def same_statistics(run: Path, other: Path) -> bool:
    return (run / "statistics.npz").read_bytes() == (other / "statistics.npz").read_bytes()


@pytest.mark.slow
def test_observed_quantities_are_stored(whole) -> None:
    found = arrays(whole)
    q = found["q"][..., 0]
    assert np.array_equal(found["stretch"], np.abs(q))
    assert np.array_equal(found["widest"], np.abs(q).max(1))
    assert np.array_equal(found["both"], np.stack([q, found["v"][..., 0]], -1))


@pytest.mark.slow
def test_statistics_are_those_of_the_stored_trajectories(whole) -> None:
    found, q = open_results(str(whole)).statistics, arrays(whole)["q"][..., 0]
    widest = np.abs(q).max(1)
    assert found["wide"]["hits"] == (widest > 0.5).sum()
    assert found["x"]["mean"] == pytest.approx(q.mean(0), abs=1e-14)
    assert found["x"]["sd"] == pytest.approx(q.std(0, ddof=1))
    assert np.array_equal(found["x"]["max_index"], q.argmax(0))
    assert found["both"]["mean"].shape == (5, 2)
    assert found["when"]["passed"].sum() + found["when"]["never"] == 20


@pytest.mark.slow
def test_without_trajectories_the_statistics_are_the_same(whole, only) -> None:
    assert same_statistics(whole, only)
    assert {"status", "rank", "statistics"} < {*arrays(only)}
    assert not {"q", "stretch", "widest", "parameter_k"} & {*arrays(only)}
    one, two = (json.loads((run / "summary.json").read_text()) for run in (whole, only))
    for key in ("done", "status", "worst", "smallest_rank", "too_coarse", "statistics"):
        assert one[key] == two[key], key


def test_an_interrupted_study_continues_to_the_same_bits(only, tmp_path, monkeypatch) -> None:
    """Statistics are merged in order, and while later blocks are computed."""
    noted = list[tuple[str, int]]()

    def noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda run, block, *args: noted.append((name, block)) or method(run, block, *args)

    monkeypatch.setattr(StudyFolder, "write", noting("write", StudyFolder.write))
    monkeypatch.setattr(StudyFolder, "states", noting("states", StudyFolder.states))
    out = tmp_path / "run"
    shutil.copytree(only, out)
    killed(out, 1, 3, 4)
    shutil.rmtree(out / "results.zarr" / "statistics" / "c" / "4")
    observed(tmp_path, ONLY)
    assert same_bits(only, out)
    for name in ("statistics.npz", "summary.json", "summary.txt"):
        assert (out / name).read_bytes() == (only / name).read_bytes()
    assert [block for name, block in noted if name == "states"] == [0, 1, 2, 3, 4]
    assert noted.index(("states", 0)) < noted.index(("write", 3))


def test_the_last_times_alone_are_stored(whole, tmp_path) -> None:
    text = STUDY.replace("block = 4", 'block = 4\nstore = "final"')
    found = arrays(observed(tmp_path, text))
    assert found["q"].shape == (20, 1, 1)
    assert found["t"].tolist() == [1.0]
    assert np.array_equal(found["q"][:, 0], arrays(whole)["q"][:, -1])


@pytest.mark.slow
def test_a_run_is_not_continued_with_another_use_of_reactions(tmp_path) -> None:
    text = ONLY.replace("of.py:pair", "of.py:work")
    killed(observed(tmp_path, text), 1)
    other = FUNCTIONS.replace("reactions.qdd @ v", "2 * reactions.qdd @ v")
    (tmp_path / "of.py").write_text(other)
    with pytest.raises(FolderError, match="observe both"):
        run_study(read(tmp_path / "study.toml", Study), tmp_path / "run", folder=tmp_path)


@pytest.mark.slow
def test_reactions_are_given_on_request(tmp_path) -> None:
    rod = Observed(lambda q, v, t, p, reactions: reactions.multipliers["rod"][0] * jnp.sum(q**2))
    study = Study(
        model="pendulum", size=3, times=Times(end=0.5, saves=3), steps=FixedSteps(per_save=10),
        start={"theta": Uniform(-2.0, 2.0)}, observe={"pull": rod}, save=("q", "multipliers"),
    )  # fmt: skip
    run_study(study, tmp_path / "run")
    found = arrays(tmp_path / "run")
    exact = found["multipliers_rod"][..., 0] * (found["q"] ** 2).sum(-1)
    assert found["pull"] == pytest.approx(exact)


@pytest.mark.slow
def test_the_example_of_the_page_of_studies(tmp_path) -> None:
    text = (CONFIGS / "tip_over.toml").read_text()
    config = tmp_path / "tip_over.toml"
    config.write_text(text.replace("20_000", "600").replace("2_000", "100"))
    shutil.copy(CONFIGS / "tip_over.py", tmp_path)
    run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    found = open_results(tmp_path / "run").statistics
    low, high = found["fast"]["low"], found["fast"]["high"]
    assert low < 0.0202 < high  # as 20,000 trajectories say
    assert found["spread"]["counts"].sum() == found["fast"]["count"] == 600
    assert found["speeds"]["max"] >= 6.0
