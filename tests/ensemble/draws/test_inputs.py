"""Studies with recorded and random inputs: each trajectory is that of `simulate`, in SI units."""

from pathlib import Path

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.cli.main import main
from jaxmech.config.load import load
from jaxmech.ensemble import Fixed, RecordedInput, Study, Times, Uniform, open_results, run_study
from tests.ensemble.studies import CAR, arrays, replayed

STUDY = """
model = "car.py:car"
size = 6
block = 6

[times]
end = 1.9
saves = 20

[steps]
per_save = 8

[coordinates]
height = 0.0

[parameters]
m = 1.0
c = 1.0
k = { distribution = "uniform", low = 30.0, high = 50.0 }

[inputs.road]
"""
TIMES = np.arange(41) / 20
ROAD = 0.02 * np.random.default_rng(0).normal(size=41)


def computed(folder: Path, road: str) -> Path:
    (folder / "car.py").write_text(CAR)
    (folder / "study.toml").write_text(STUDY + road)
    assert main(["ensemble", str(folder / "study.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def write_road(folder: Path, heights: np.ndarray) -> None:
    rows = np.stack([TIMES, heights], axis=1)
    np.savetxt(folder / "road.csv", rows, delimiter=",", header="t,road", comments="")


def require_motion(run: Path, index: int, road: jm.Signal) -> None:
    """A trajectory is that of `simulate` with the input."""
    trajectory = replayed(run, index)
    assert all(trajectory.compared.values())
    np.testing.assert_allclose(trajectory.params["road"].values, road.values, atol=1e-12)
    system = load("car.py:car", {}, run.parent).system
    params = {"m": 1.0, "c": 1.0, "k": float(trajectory.params["k"]), "road": road}
    ts = np.linspace(0.0, 1.9, 20)
    sol = jm.simulate(system, [0.0], [0.0], ts, params, steps=jm.FixedSteps(8))
    np.testing.assert_allclose(trajectory.values["q"], sol.q, atol=1e-8)
    assert np.abs(sol.q).max() > 1e-4


def test_a_recorded_input_drives_all_and_is_copied(tmp_path: Path) -> None:
    write_road(tmp_path, ROAD)
    run = computed(tmp_path, 'file = "road.csv"\ncolumn = "road"')
    require_motion(run, 5, jm.Signal(TIMES, ROAD))
    write_road(tmp_path, 0 * ROAD)  # a replay reads what the configuration names
    assert not replayed(run, 5).compared["q"]
    assert (run / "road.csv").is_file()
    # but a run is not continued with it
    assert main(["ensemble", str(tmp_path / "study.toml"), "--out", str(run)]) == 2


def test_white_noise_is_drawn_for_each_trajectory(tmp_path: Path) -> None:
    run = computed(tmp_path, "kind = 'white-noise'\nintensity = 2e-6\ninterval = 0.1\n")
    draws = arrays(run)["parameter_road"]
    assert draws.shape == (6, 19)
    road = jm.Signal(0.1 * np.arange(19), np.sqrt(2e-6 / 0.1) * draws[4], "hold")
    require_motion(run, 4, road)
    assert "input road from white noise" in (run / "summary.txt").read_text()


PUSHED = """
import jaxmech as jm

cart = jm.System(
    lambda q, v, t, p: 0.5 * p["m"] * v @ v,
    force=lambda q, v, t, p: p["push"](t)[None],
    coordinates=("x",),
)
"""
UNITS = {  # columns and samples of a file, the settings of the input, and the force [N]
    "in the file": (
        "t [ms],force [kN]\n0,0.003\n2000,0.003\n", {"column": "force [kN]"}, 3.0,
    ),
    "stated": (
        "t,force\n0,0.003\n2000,0.003\n",
        {"column": "force", "units": {"force": "kN", "t": "ms"}}, 3.0,
    ),
    "kept": (
        "t,torque [mN m]\n0,5\n2000,5\n",
        {"column": "torque", "units": {"torque": "", "t": "ms"}}, 5.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNITS)
def test_units_of_columns_are_converted_and_said(tmp_path: Path, kind: str) -> None:
    """A constant force F moves a mass by F t**2 / (2 m)."""
    text, settings, force = UNITS[kind]
    (tmp_path / "push.csv").write_text(text)
    (tmp_path / "cart.py").write_text(PUSHED)
    study = Study(
        model="cart.py:cart", size=4, block=4, times=Times(end=2.0, saves=2),
        steps=jm.FixedSteps(4), coordinates={"x": Uniform(0.0, 1e-9)},
        parameters={"m": Fixed(4.0)}, inputs={"push": RecordedInput(file="push.csv", **settings)},
    )  # fmt: skip
    run_study(study, tmp_path / "run", folder=tmp_path)
    places = open_results(tmp_path / "run").all_of("q")[:, -1, 0]
    np.testing.assert_allclose(places, force * 2.0**2 / (2 * 4.0), rtol=1e-8)
    summary = (tmp_path / "run" / "summary.txt").read_text()
    said = "input push from push.csv; t [ms] was converted to s; force [kN] was"
    assert kind != "in the file" or said in summary
