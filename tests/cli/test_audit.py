"""The command `jaxmech audit`: freedoms, what is not used, soft loops and limits."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.cli.audit import audit, deviation
from jaxmech.cli.main import main
from jaxmech.interop.mujoco import from_mjcf
from tests.interop.models import FOUR_BAR

mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed: jaxmech[mujoco]")


@pytest.mark.slow
def test_a_four_bar_is_audited(tmp_path: Path, capsys) -> None:
    file = tmp_path / "bars.xml"
    file.write_text(FOUR_BAR.replace("</mujoco>", "<sensor/></mujoco>"), encoding="utf-8")
    assert main(["audit", str(file), "--seconds", "0.2"]) == 0
    shown = capsys.readouterr().out
    assert "freedom       1 of position, 1 of velocity\n" in shown
    assert "independent   2 of 3 equations here, 2 nearby\n" in shown
    assert "left out      contact: crank, coupler, rocker\n" in shown
    assert "sensor\n" in shown


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:left out of the model")
def test_stiffer_loops_come_closer_to_rigid_ones() -> None:
    robot = from_mjcf(FOUR_BAR)
    system, (q, _) = robot.mechanism.system, robot.start
    A = np.asarray(system.dynamics.velocity_jacobian(q, q, jnp.zeros(()), robot.mechanism.params))
    v = 2 * np.linalg.svd(A)[2][-1]
    off, gaps = [], []
    for stiffness in (1e4, 1e6, 1e8):
        model = mujoco.MjSpec.from_string(FOUR_BAR).compile()
        model.opt.timestep = 0.1 / np.sqrt(stiffness)
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
        model.eq_solref[:] = -stiffness, -2 * np.sqrt(stiffness)
        model.eq_solimp[:] = 0.9999, 0.9999, 0.001, 0.5, 2
        found = deviation(robot, model, q, v, robot.mechanism.params, 0.5)
        off.append(max(x.max() for x in found.distances.values()))
        gaps.append(found.gaps["pin"].max())
    assert off[1] < off[0] / 50
    assert off[2] < off[1] / 20
    assert gaps[2] < gaps[1] / 50 < gaps[0] / 2500
    assert off[2] < 1e-10


LIMITED = """
<mujoco><worldbody>
  <site name="hook" pos="1 0 1"/>
  <body name="weight"><joint name="rail" type="slide" axis="0 0 1" limited="true" range="-0.2 1"/>
    <inertial pos="0 0 0" mass="2" diaginertia="0.1 0.1 0.1"/></body>
  <body name="bob" pos="1 0 0.5"><joint name="fall" type="slide" axis="0 0 1"/>
    <inertial pos="0 0 0" mass="3" diaginertia="0.1 0.1 0.1"/><site name="eye"/></body>
</worldbody>
<tendon><spatial name="cord" limited="true" range="0 0.6">
  <site site="hook"/><site site="eye"/></spatial>
  <spatial name="strut" limited="true" range="0.2 0.6">
  <site site="hook"/><site site="eye"/></spatial></tendon>
</mujoco>
"""


def test_limits_of_mujoco_are_passed(tmp_path: Path) -> None:
    """A weight falls to its stop, and a bob into its cord. The strut is in neither motion."""
    file = tmp_path / "limited.xml"
    file.write_text(LIMITED, encoding="utf-8")
    report = audit(file, 0.5)
    assert report.deviation is not None
    assert {*report.deviation.limits} == {"rail.limit[0]", "cord.limit"}
    for beyond in report.deviation.limits.values():
        assert 1e-4 < beyond[-1] < beyond.max() < 0.1
    assert "left out      tendon: strut" in str(report)
