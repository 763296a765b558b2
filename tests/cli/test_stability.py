"""`jaxmech modes` and `jaxmech equilibria`: what they print, write and refuse."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxmech.cli.main import main

FREE = """
import jaxmech as jm

def lagrangian(q, v, t, p):
    return v @ v / 2 - q[0]

system = jm.System(lagrangian, coordinates=("x",))
q0 = [1.0]
"""


@pytest.fixture(autouse=True)
def _close() -> None:
    plt.close("all")


@pytest.mark.slow
def test_modes_of_the_hanging_pendulum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    command = ["modes", "pendulum", "--start", "theta=0.3", "--param", "l=2.0"]
    assert main([*command, "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["q"] == {"x1": pytest.approx(0, abs=1e-12), "x2": pytest.approx(-2.0)}
    assert (found["stability"], found["near_state"]) == ("STABLE", True)
    height = sorted(one["eigenvalue"][1] for one in found["modes"])
    np.testing.assert_allclose(height, [-np.sqrt(9.81 / 2), np.sqrt(9.81 / 2)])
    files = sorted(file.name for file in out.iterdir())
    assert files == ["mode0.gif", "poles.png", "shapes.png"]


@pytest.mark.slow
def test_without_an_equilibrium_near_the_state_the_lowest_is_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["modes", "pendulum"]) == 0  # the default state is horizontal
    said = capsys.readouterr().out
    assert said.startswith("there is no equilibrium near the state; of 2 found")
    assert "0.498488" in said


@pytest.mark.slow
def test_equilibria_of_the_pendulum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["equilibria", "pendulum", "--starts", "20", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "Equilibria: 2 from 20 starts" in said
    assert "x1 0, x2 1: UNSTABLE, index 1, 9.81 J" in said
    assert sorted(x.name for x in tmp_path.iterdir()) == ["equilibrium0.png", "equilibrium1.png"]
    assert main(["equilibria", "pendulum", "--starts", "20", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["equilibria"]
    assert [row["index"] for row in rows] == [0, 1]


def test_bad_input_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "free.py"
    file.write_text(FREE)
    for command in ("modes", "equilibria"):
        assert main([command, f"{file}:system"]) == 2
        said = capsys.readouterr().err
        assert "jaxmech: " in said
        assert "equilibrium" in said
    assert main(["modes", "pendulun"]) == 2
    assert "did you mean `pendulum`" in capsys.readouterr().err
    assert main(["equilibria", "pendulum", "--spread", "nan"]) == 2
    assert "spread" in capsys.readouterr().err
