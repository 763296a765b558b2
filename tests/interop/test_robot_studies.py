"""Studies and commands whose model is an MJCF or URDF file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.cli.fit import FitStudy, model
from jaxmech.cli.main import main
from jaxmech.cli.resolve import load_state
from jaxmech.config.errors import StudyError
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, open_results, replay, run_study
from jaxmech.interop.mujoco import from_mjcf

pytest.importorskip("mujoco", reason="MuJoCo is not installed: jaxmech[mujoco]")

ARM = """
<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0 -0.2"/><mass value="1.5"/>
    <inertia ixx="0.03" iyy="0.03" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="fore"><inertial><origin xyz="0 0 -0.15"/><mass value="0.8"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/>
    <origin xyz="0 0 1"/><axis xyz="0 1 0"/><dynamics damping="0.1"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="fore"/>
    <origin xyz="0 0 -0.4"/><axis xyz="0 1 0"/><dynamics damping="0.05"/></joint>
</robot>
"""

STUDY = """
model = "robots/arm.urdf"
size = 8
times = { end = 0.5, saves = 3 }
steps = { per_save = 20 }

[start]
"shoulder.angle" = { distribution = "uniform", low = 0.5, high = 1.0 }

[parameters]
"mass.fore" = { distribution = "normal", sd = 0.1, relative = true }
"damping.elbow" = 0.2
"inertia.upper[1,1]" = { distribution = "normal", sd = 0.1, relative = true }
"anchor.elbow[2]" = { distribution = "uniform", low = -0.45, high = -0.35 }
"""

KINDS = ("anchor", "damping", "inertia", "mass")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "robots").mkdir()
    (tmp_path / "robots" / "arm.urdf").write_text(ARM)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_a_study_of_a_file_scatters_its_numbers(folder: Path) -> None:
    run = folder / "run"
    run_study(read(folder / "study.toml", Study), run, folder=folder)
    assert (run / "model.urdf").read_text() == ARM
    results = open_results(run)
    assert (results.config["model"], results.name) == ("model.urdf", "arm")
    (folder / "robots" / "arm.urdf").unlink()
    again = replay(run, 5)
    assert all(again.compared.values())
    assert sum(np.size(drawn) for drawn in again.drawn.values()) >= 4, again.drawn
    robot = from_mjcf(ARM, params=KINDS)
    params = dict(again.params)
    assert params.keys() == robot.mechanism.params.keys()
    assert (params["damping.elbow"], params["mass.upper"]) == (0.2, 1.5)
    assert params["inertia.upper"].shape == (3, 3)
    q, steps = jnp.asarray(again.values["q"]), jm.FixedSteps(per_save=20)
    sol = jm.simulate(robot.mechanism.system, q[0], jnp.zeros(2), again.ts, params, steps=steps)
    np.testing.assert_allclose(sol.q, q, rtol=1e-10)


@pytest.mark.slow
def test_a_longer_link_is_the_same_as_another_file() -> None:
    longer = from_mjcf(ARM.replace("0 0 -0.4", "0 0 -0.7")).mechanism.system
    scattered = from_mjcf(ARM, params=("anchor",)).mechanism
    params = {**scattered.params, "anchor.elbow": jnp.array([0.0, 0.0, -0.7])}
    q, v, t = jnp.array([0.4, -0.9]), jnp.array([1.0, 2.0]), jnp.zeros(())
    np.testing.assert_allclose(scattered.params["anchor.elbow"], [0, 0, -0.4], atol=1e-15)
    mass = jax.jit(scattered.system.dynamics.mass)(q, v, t, params)
    np.testing.assert_allclose(mass, jax.jit(longer.dynamics.mass)(q, v, t, {}), rtol=1e-12)


def test_commands_take_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arm = str(folder / "robots" / "arm.urdf")
    np.testing.assert_allclose(load_state(arm)[1].q, [0.0, 0.0])
    assert main(["check", arm, "--fast"]) == 0
    assert "freedom       2 of position" in capsys.readouterr().out


FIT = """
model = "robots/arm.urdf"

[parameters]
free = ["fore", "damping.elbow"]
prior = { "mass.fore" = [0.8, 0.1] }

[data]
file = "swings.csv"
observed = ["a", "b"]
noise_sd = 0.01
"""


@pytest.mark.slow
def test_a_configuration_of_a_fit_names_a_body(folder: Path) -> None:
    """Its mass, centre and inertia are then fitted together."""
    (folder / "fit.toml").write_text(FIT)
    subject = model(read(folder / "fit.toml", FitStudy), folder).other
    assert subject.free == ("fore", "damping.elbow")
    assert list(subject.prior) == ["mass.fore"]
    (folder / "fit.toml").write_text(FIT.replace('"fore",', '"fork",'))
    with pytest.raises(StudyError, match="'fork'"):
        model(read(folder / "fit.toml", FitStudy), folder)
