"""`jaxmech modes CONFIG.toml`: probabilities with closed forms, what is written and refused."""

import json
import shutil
import tomllib
from dataclasses import replace
from math import log, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from jaxmech.analysis.equilibrium import EquilibriumStatus, Stability
from jaxmech.cli.main import main
from jaxmech.cli.modes.members import Blocks, Members, members
from jaxmech.cli.modes.run import run_modes
from jaxmech.cli.modes.study import ModesStudy
from jaxmech.cli.modes.summary import as_table, summarize
from jaxmech.config.toml import read
from jaxmech.ensemble import Fixed, StudyError, Uniform

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


@pytest.fixture(scope="module")
def hoop() -> tuple[ModesStudy, Members]:
    """The first members of the example, which are those of a shorter study."""
    study = replace(read(CONFIGS / "hoop_stability.toml", ModesStudy), size=512, block=512)
    return study, members(study, CONFIGS)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "springs.py").write_text(INVERTED)
    return tmp_path


@pytest.mark.slow  # a steady motion compiles for long
def test_bead_on_a_hoop_is_unstable_where_the_closed_form_says(hoop) -> None:
    study, found = hoop
    drawn = {one.name: one.values for one in found.variables}
    square = drawn["turn"] ** 2 - 9.81 / drawn["R"]  # of the growth, or minus that of the vibration
    np.testing.assert_array_equal(found.stability == Stability.UNSTABLE, square > 0)
    np.testing.assert_allclose(found.growth, np.sqrt(np.maximum(square, 0)), atol=1e-9)
    vibrating = 2 * np.pi * np.where(square < 0, found.frequencies[:, 0], 0.0)
    np.testing.assert_allclose(vibrating, np.sqrt(np.maximum(-square, 0)), atol=1e-9)
    exact = NormalDist().cdf(log(3.0**2 / 9.81) / sqrt((2 * 0.1) ** 2 + 0.3**2))
    summary = summarize(study, found)
    low, high = summary["interval"]
    assert low < exact < high
    assert high - low == pytest.approx(2 * 1.96 * sqrt(exact * (1 - exact) / 512), rel=0.01)
    text = as_table(summary)
    assert f"95 % interval {low:.4g} to {high:.4g} (Wilson)" in text
    assert "if the others" not in text


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
    with np.load(out / "members.npz") as stored:
        k = stored["parameter_k"]
        assert summary["unstable"] == int((k < 9.81).sum()) == int((stored["stability"] == 0).sum())
        np.testing.assert_allclose(
            stored["eigenvalues"][:, 0] ** 2, 9.81 - k, rtol=1e-9, atol=1e-12
        )
    assert summary["quantiles"]["frequency 1 [Hz]"]["count"] == int((k > 9.81).sum())
    names = sorted(file.name for file in out.rglob("*") if file.is_file())
    assert names == [
        ".lock", ".written-here", "config.toml", "environment.json", "members.npz", "model.py",
        "poles.png", "summary.json", "summary.txt", "verdicts.png",
    ]  # fmt: skip
    assert tomllib.loads((out / "config.toml").read_text())["model"] == "model.py:pole"
    config.write_text(config.read_text().replace("200", "300"))
    assert main(command) == 2
    assert "`size` is 200 there and 300 here" in capsys.readouterr().err


def test_an_interrupted_study_continues_from_its_blocks(models) -> None:
    kept, parameters = models / "blocks", {"k": Uniform(9.0, 11.0)}
    study = ModesStudy(model="springs.py:pole", size=20, block=8, parameters=parameters)
    study = replace(study, coordinates={"angle": Fixed(0.0)})
    whole = members(study, models, kept=kept)
    files = sorted(kept.iterdir())
    assert [file.name for file in files] == ["000000.npz", "000001.npz", "000002.npz"]

    # What was computed is taken as it is; what is not there, or is damaged, is computed.
    with np.load(files[0]) as stored:
        np.savez(files[0], **{**stored, "residual": np.full(8, 7.0)})
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-40])
    again = members(study, models, kept=kept)
    np.testing.assert_array_equal(again.residual, [*[7.0] * 8, *whole.residual[8:]])
    assert_same(replace(again, residual=whole.residual), whole)

    # Nothing is taken that comes from another function.
    (models / "springs.py").write_text(INVERTED.replace("9.81 * jnp.cos", "9.5 * jnp.cos"))
    fresh = members(study, models, kept=kept)
    k = next(one.values for one in fresh.variables if one.name == "k")
    np.testing.assert_allclose(fresh.eigenvalues[:, 0] ** 2, 9.5 - k, rtol=1e-9, atol=1e-12)


def test_a_block_with_other_draws_or_origin_is_recomputed(tmp_path) -> None:
    drawn = ({"parameters": {"k": np.arange(3.0)}}, {"parameters": {"m": np.array(1.0)}})
    other = ({"parameters": {"k": np.arange(3.0)}}, {"parameters": {"m": np.array(1.5)}})
    blocks = Blocks(tmp_path / "blocks", "one")
    blocks.write(4, drawn, {"q": np.eye(2)})
    found = blocks.read(4, drawn)
    assert found is not None
    np.testing.assert_array_equal(found["q"], np.eye(2))
    assert blocks.read(4, other) is None
    assert blocks.read(3, drawn) is None
    assert Blocks(tmp_path / "blocks", "two").read(4, drawn) is None


def assert_same(one: Members, two: Members) -> None:
    for name in ("status", "stability", "residual", "q", "v", "eigenvalues", "zero"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


def test_a_member_without_equilibrium_is_in_neither_count(models) -> None:
    study = ModesStudy(
        model="springs.py:block",
        size=64,
        coordinates={"x": Uniform(-0.5, 0.5)},
        parameters={"F": Uniform(-2.0, 2.0)},
    )
    found = members(study, models)
    force = next(one.values for one in found.variables if one.name == "F")
    lost = np.abs(force) > 1
    assert 0 < lost.sum() < 64
    np.testing.assert_array_equal(found.status != EquilibriumStatus.FOUND, lost)
    np.testing.assert_array_equal(np.isnan(found.eigenvalues).any(axis=1), lost)
    np.testing.assert_allclose(found.q[~lost, 0], force[~lost], atol=1e-9)
    summary = summarize(study, found)
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
        run_modes(ModesStudy(model="pendulum", size=10), models / "out")


def test_options_of_a_system_are_refused(capsys) -> None:
    assert main(["modes", "study.toml", "--param", "l=2.0"]) == 2
    assert "--param is for a SYSTEM; change study.toml instead" in capsys.readouterr().err
