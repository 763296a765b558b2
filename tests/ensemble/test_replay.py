"""One trajectory replayed alone is bit-identical to its study, and reports where it fails."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxmech.cli.main import main
from jaxmech.ensemble.study import SAVED
from jaxmech.status import Status
from tests.ensemble.studies import (
    STUDY,
    arrays,
    computed,
    replayed,
    write_study,
)

BAD = STUDY.replace("limit = 2.0", "limit = 0.7")


@pytest.fixture(scope="module")
def bad(tmp_path_factory) -> Path:
    """A run in which some trajectories fail."""
    return computed(tmp_path_factory.mktemp("bad"), BAD)


@pytest.mark.slow
@pytest.mark.parametrize("good", [True, False])
def test_it_has_the_bits_of_the_study(bad, good) -> None:
    stored = arrays(bad)
    index = int(np.flatnonzero((stored["status"] == 0) == good)[2])
    found = replayed(bad, index)
    assert set(SAVED) < set(found.compared)
    assert all(found.compared.values())
    for name in ("q", "v", "energy"):
        assert found.values[name].tobytes() == stored[name][index].tobytes()
    assert found.drawn["parameter_kick"] == stored["parameter_kick"][index]
    assert found.status == (Status.OK if good else Status.NONFINITE)
    assert ("failed at" in str(found)) != good
    assert f"trajectory {index} of 20 of spring, seed 3" in str(found)
    assert "bit-identical to what is stored: " in str(found)


def test_the_place_of_a_failure_is_reported(bad) -> None:
    stored = arrays(bad)
    index = int(np.flatnonzero(stored["status"])[0])
    found = replayed(bad, index)
    last = found.last_good
    assert np.isfinite(stored["q"][index, : last + 1]).all()
    assert np.isnan(stored["q"][index, last + 1]).all()
    assert f"t = {float(stored['t_failed'][index]):.6g} s" in str(found)
    assert f"last finite save   t = {found.ts[last]:.6g} s, number {last}" in str(found)


@pytest.mark.slow
def test_differing_bits_are_reported(bad, tmp_path, capsys) -> None:
    out, config = tmp_path / "run", tmp_path / "study.toml"
    shutil.copytree(bad, out)
    write_study(tmp_path, BAD.replace("mean = 10.0", "mean = 11.0"))
    stored = (out / "config.toml").read_text()
    (out / "config.toml").write_text(stored.replace("mean = 10.0", "mean = 11.0"))
    good = int(np.flatnonzero(arrays(out)["status"] == 0)[0])
    command = ["replay", str(out), str(good), "--config", str(config)]
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert "differs from what is stored: " in shown
    assert "q" in shown.rpartition("stored: ")[2].split(", ")
    environment = json.loads((out / "environment.json").read_text())
    (out / "environment.json").write_text(json.dumps({**environment, "jax": "0.1"}))
    assert main(command) == 1
    assert 'differs from what is stored, since jax is "0.1" there' in capsys.readouterr().out


def test_the_configuration_that_is_named_must_be_that_of_the_run(bad, tmp_path, capsys) -> None:
    assert main(["replay", str(bad), "3"]) == 2
    assert "names model.py, whose copies in the run folder are not" in capsys.readouterr().err
    other = write_study(tmp_path, BAD.replace("seed = 3", "seed = 4"))
    assert main(["replay", str(bad), "3", "--config", str(other)]) == 2
    assert "`seed` is 3 there and 4 here" in capsys.readouterr().err
    assert main(["replay", str(bad), "3", "--config", str(bad / "config.toml")]) == 2
    assert "whose Python files are copies and are not executed" in capsys.readouterr().err


@pytest.mark.slow
def test_final_states_are_compared(tmp_path) -> None:
    text = STUDY.replace("block = 4", 'block = 4\nstore = "final"')
    found = replayed(computed(tmp_path, text), 7)
    assert found.compared["q"]
    assert all(found.compared.values())
    assert found.values["q"].shape == (5, 1)
    assert found.values["q"].dtype == np.float64
