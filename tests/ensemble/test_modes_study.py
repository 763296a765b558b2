"""`jaxmech modes CONFIG.toml`: probabilities with closed forms, what is written and refused."""

import json
import shutil
import tomllib
from dataclasses import replace
from math import log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from jaxmech.analysis.equilibrium import EquilibriumStatus, Stability
from jaxmech.cli.main import main
from jaxmech.config.run_folder import FolderError
from jaxmech.config.toml import read
from jaxmech.ensemble import (
    Covariance,
    FirstPassage,
    Fixed,
    ModesStudy,
    Moments,
    Probability,
    Results,
    Sampling,
    StudyError,
    Uniform,
    Until,
    open_results,
    run_study,
)
from jaxmech.ensemble.checksums import mark_of
from jaxmech.ensemble.run import BlockRange
from jaxmech.ensemble.summary import as_table
from tests.ensemble.studies import killed, same_results

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
INVERTED = """
import jax.numpy as jnp
import jaxmech as jm

def lagrangian(q, v, t, p):  # on a spring of stiffness k, pushed by a force F along x
    return v @ v / 2 - 9.81 * jnp.cos(q[0]) - p["k"] * q[0] ** 2 / 2

def traction(q, v, t, p):  # bounded: beyond -1 or 1 it balances nowhere
    return -q + jnp.where(jnp.abs(p["F"]) > 1, p["F"] + q, p["F"])

pole = jm.System(lagrangian, coordinates=("angle",))
block = jm.System(lambda q, v, t, p: v @ v / 2, force=traction, coordinates=("x",))
"""


def computed(study: ModesStudy, folder: Path, out: Path) -> Results:
    run_study(study, out, folder=folder)
    return open_results(out)


@pytest.fixture(scope="module")
def hoop(tmp_path_factory) -> Results:
    """The first members of the example, which are those of a shorter study."""
    study = replace(read(CONFIGS / "hoop_stability.toml", ModesStudy), size=512, block=512)
    return computed(study, CONFIGS, tmp_path_factory.mktemp("hoop") / "run")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "springs.py").write_text(INVERTED)
    return tmp_path


@pytest.mark.slow  # a steady motion compiles for long
def test_bead_on_a_hoop_is_unstable_where_the_closed_form_says(hoop) -> None:
    turn, radius = hoop.all_of("velocity_turn"), hoop.all_of("parameter_R")
    square = turn**2 - 9.81 / radius  # of the growth, or minus that of the vibration
    stability, growth = hoop.all_of("stability"), hoop.all_of("growth")
    np.testing.assert_array_equal(stability == Stability.UNSTABLE, square > 0)
    np.testing.assert_allclose(growth, np.sqrt(np.maximum(square, 0)), atol=1e-9)
    frequency = hoop.all_of("frequencies")[:, 0]
    vibration = 2 * np.pi * np.where(square < 0, frequency, 0.0)
    np.testing.assert_allclose(vibration, np.sqrt(np.maximum(-square, 0)), atol=1e-9)
    exact = NormalDist().cdf(log(3.0**2 / 9.81) / sqrt((2 * 0.1) ** 2 + 0.3**2))
    summary = hoop.summary
    low, high = summary["interval"]
    assert low < exact < high
    assert high - low == pytest.approx(2 * 1.96 * sqrt(exact * (1 - exact) / 512), rel=0.01)
    text = as_table(summary)
    assert f"95 % interval {low:.4g} to {high:.4g} (Wilson)" in text
    assert "if the others" not in text


@pytest.mark.slow
def test_inverted_pendulum_on_a_spring_by_the_command(models, capsys) -> None:
    config, out = models / "pole.toml", models / "out"
    config.write_text(
        'model = "springs.py:pole"\nsize = 200\nblock = 128\n[coordinates]\nangle = 0.0\n'
        '[parameters]\nk = { distribution = "uniform", low = 9.0, high = 11.0 }\n'
    )
    command = ["modes", str(config), "--out", str(out)]
    assert main([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    low, high = summary["interval"]
    assert low < (9.81 - 9.0) / 2 < high
    results = open_results(out)
    k, stability = results.all_of("parameter_k"), results.all_of("stability")
    assert summary["unstable"] == int((k < 9.81).sum()) == int((stability == 0).sum())
    eigenvalues = results.all_of("eigenvalues")
    np.testing.assert_allclose(eigenvalues[:, 0] ** 2, 9.81 - k, rtol=1e-9, atol=1e-12)
    assert summary["quantiles"]["frequency 1 [Hz]"]["count"] == int((k > 9.81).sum())
    assert {file.name for file in (out / "pictures").iterdir()} == {"poles.png", "verdicts.png"}
    assert tomllib.loads((out / "config.toml").read_text())["model"] == "model.py:pole"
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text("utf-8")
    assert "200 of 200 members, none without a verdict." in page
    assert Stability.UNSTABLE.meaning in page
    assert main(["replay", str(out), "3", "--trust"]) == 2
    assert "only motions are replayed" in capsys.readouterr().err
    config.write_text(config.read_text().replace("200", "300"))
    assert main(command) == 2
    assert "`size` is 200 there and 300 here" in capsys.readouterr().err


def pole(models: Path, **more: Any) -> ModesStudy:
    rules = {"k": Uniform(9.0, 11.0)}
    return ModesStudy(
        model="springs.py:pole", size=20, block=8, parameters=rules,
        coordinates={"angle": Fixed(0.0)}, **more,
    )  # fmt: skip


@pytest.mark.slow
def test_an_interrupted_study_continues_from_its_blocks(models) -> None:
    study, run = pole(models), models / "run"
    computed(study, models, run)
    whole = shutil.copytree(run, models / "whole")
    killed(run, 1)
    times = {mark: mark_of(run, mark).stat().st_mtime_ns for mark in (0, 2)}
    computed(study, models, run)
    assert same_results(run, whole)
    assert times == {mark: mark_of(run, mark).stat().st_mtime_ns for mark in (0, 2)}

    part = models / "part"
    run_study(study, part, folder=models, part=BlockRange(1, 2))
    computed(study, models, part)
    assert same_results(part, whole)

    # Nothing is taken that comes from another function.
    (models / "springs.py").write_text(INVERTED.replace("9.81 * jnp.cos", "9.5 * jnp.cos"))
    killed(run, 1)
    with pytest.raises(FolderError, match="the model differs in lagrangian"):
        computed(study, models, run)


def test_statistics_of_spectra_are_those_of_their_arrays(models) -> None:
    statistics = {
        "growth": Moments(of="growth"),
        "fast": Probability(of="growth", above=0.5),
        "k": Covariance(of=("growth",)),
    }
    until = Until(quantity="instability", half_width=0.49, at_least=8)
    results = computed(pole(models, statistics=statistics, until=until), models, models / "run")
    assert results.summary["done"] == 8
    growth, k = results.all_of("growth"), results.all_of("parameter_k")
    assert results.statistics["growth"]["mean"] == pytest.approx(growth.mean())
    assert results.statistics["fast"]["hits"] == (growth > 0.5).sum()
    correlation = results.statistics["k"]["correlation"][0, 1]
    assert correlation == pytest.approx(np.corrcoef(growth, k)[0, 1])


def test_quantities_of_motions_are_refused(models) -> None:
    for statistic, message in (
        (Moments(of="energy"), "is not a quantity of a spectrum; Known: angle"),
        (FirstPassage(of="lands"), "a spectrum has no events"),
    ):
        with pytest.raises(StudyError, match=message):
            run_study(pole(models, statistics={"x": statistic}), models / "run", folder=models)


@pytest.mark.slow
def test_weights_of_members_count(models) -> None:
    """A probability with draws from another distribution, of which every member has a weight."""
    sampling = Sampling(proposal={"k": Uniform(9.0, 12.0)})
    study = replace(pole(models, sampling=sampling), size=400, block=400)
    results = computed(study, models, models / "run")
    low, high = results.summary["interval"]
    assert low < (9.81 - 9.0) / 2 < high
    assert "(weighted)" in as_table(results.summary)


@pytest.mark.slow
def test_a_member_without_equilibrium_is_in_neither_count(models) -> None:
    study = ModesStudy(
        model="springs.py:block",
        size=64,
        coordinates={"x": Uniform(-0.5, 0.5)},
        parameters={"F": Uniform(-2.0, 2.0)},
    )
    results = computed(study, models, models / "run")
    force = results.all_of("parameter_F")
    lost = np.abs(force) > 1
    assert 0 < lost.sum() < 64
    np.testing.assert_array_equal(results.status != EquilibriumStatus.FOUND, lost)
    np.testing.assert_array_equal(np.isnan(results.all_of("eigenvalues")).any(axis=1), lost)
    np.testing.assert_allclose(results.all_of("q")[~lost, 0], force[~lost], atol=1e-9)
    summary = results.summary
    assert (summary["judged"], summary["unstable"]) == (64 - lost.sum(), 0)
    assert summary["no_verdict"]["UNBALANCED"]["count"] == lost.sum()
    assert summary["bounds"] == [0.0, lost.sum() / 64]
    assert sum(summary["stability"].values()) == summary["judged"]
    assert f"{lost.sum() / 64:.4g} if they are" in as_table(summary)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size = 512": "sise = 512"}, ":8: sise is not a known key; did you mean"),
        ({"median = 3.0": "medain = 3.0"}, ":16: velocities.turn.medain"),
        ({"turn = {": "trun = {"}, ":16: velocities.trun is not a coordinate of"),
        ({":bead": ":baed"}, ":7: model is not an attribute in"),
        ({"J = 0.01": "J = 0.01\nmu = 0.1"}, "parameters.mu is not used by the system"),
        ({"J = 0.01": "# "}, "parameters must give the parameter 'J'"),
        ({"size = 512": "size = 512\nsteady = true"}, ":9: steady must be left out where rates"),
        ({"size = 512": "size = 512\nconfidence = 95"}, ":9: confidence must be between 0 and 1"),
        ({"size = 512": 'size = 512\nfixed = ["tern"]'}, ":9: fixed must name coordinates"),
    ],
)
def test_bad_input_is_reported_with_its_line(change, message, tmp_path, capsys) -> None:
    shutil.copy(CONFIGS / "hoop_stability.py", tmp_path)
    text = (CONFIGS / "hoop_stability.toml").read_text().replace("10_000", "512")
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    config = tmp_path / "hoop.toml"
    config.write_text(text)
    assert main(["modes", str(config), "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err


def test_a_study_that_scatters_nothing_is_refused(models) -> None:
    with pytest.raises(StudyError, match=r"parameters.*must hold a distribution"):
        run_study(ModesStudy(model="pendulum", size=10), models / "out")


def test_options_of_a_system_are_refused(capsys) -> None:
    assert main(["modes", "study.toml", "--param", "l=2.0"]) == 2
    assert "--param is for a SYSTEM; change study.toml instead" in capsys.readouterr().err
