"""The command `jaxmech audit`: inertias, freedoms, keyframes, soft loops and limits."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.cli.audit.deviation import deviation, draw
from jaxmech.cli.audit.report import audit, flaws
from jaxmech.cli.main import main
from jaxmech.interop.mujoco import from_mjcf
from tests.interop.models import FOUR_BAR, LEG

mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed: jaxmech[mujoco]")

BODIES = """
<mujoco><worldbody>
  <body name="rod"><joint/><inertial pos="0 0 0" mass="1" diaginertia="0.1 0.2 0.3"/></body>
  <body name="flat"><joint/><inertial pos="0 0 0" mass="1" diaginertia="0.1 0.4 0.2"/></body>
  <body name="full"><joint/>
    <inertial pos="0 0 0" mass="1" fullinertia="0.1 0.1 0.1 0.2 0 0"/></body>
  <body name="light"><joint/><inertial pos="0 0 0" mass="-1" diaginertia="1 1 1"/></body>
  <body><inertial pos="0 0 0" mass="0" diaginertia="1 1 1"/></body>
  <body name="ball"><joint/><geom size="0.1"/></body>
</worldbody></mujoco>
"""


def test_inertias_that_no_body_has_are_named() -> None:
    found = {(flaw.body, flaw.fault) for flaw in flaws(mujoco.MjSpec.from_string(BODIES))}
    assert found == {
        (
            "flat",
            "principal moments 0.1, 0.2, 0.4 kg m^2: the largest exceeds the sum of the others",
        ),
        ("full", "principal moments -0.1, 0.1, 0.3 kg m^2 are not all positive"),
        ("light", "mass -1 kg is negative"),
        ("body5", "inertia without mass"),
    }


def test_a_file_that_cannot_be_compiled_is_reported(tmp_path: Path, capsys) -> None:
    file = tmp_path / "bodies.xml"
    file.write_text(BODIES, encoding="utf-8")
    assert main(["audit", str(file)]) == 1
    shown = capsys.readouterr().out
    assert "light: mass -1 kg is negative" in shown
    assert "refused" in shown
    assert main(["audit", str(tmp_path / "none.xml")]) == 2
    assert capsys.readouterr().err.startswith("jaxmech: Argument `source` must be the path")
    with pytest.raises(SystemExit):
        main(["audit", str(file), "--seconds", "-1"])
    assert "must be a positive number, but is -1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_four_bar_is_audited(tmp_path: Path, capsys) -> None:
    keys = '<keyframe><key name="home" qpos="0 0 0"/><key name="off" qpos="0 0.1 0"/></keyframe>'
    file = tmp_path / "bars.xml"
    file.write_text(FOUR_BAR.replace("</mujoco>", keys + "</mujoco>"), encoding="utf-8")
    assert main(["audit", str(file), "--seconds", "0.2", "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "freedoms      1\n" in shown
    assert "equations     3, of which 2 are independent\n" in shown
    assert "home: consistent\n" in shown
    assert "off: pin is off by 0.098 at the level of its position" in shown
    assert "left out      contact: crank, coupler, rocker" in shown
    assert (tmp_path / "loops.png").stat().st_size > 10_000


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
  <body name="arm" pos="0 1 0"><joint name="elbow" axis="0 1 0" frictionloss="20"/>
    <inertial pos="1 0 0" mass="2" diaginertia="0.1 0.1 0.1"/></body>
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
    """A weight falls to its stop, a bob into its cord, and friction holds an arm.

    The strut is in neither motion.
    """
    file = tmp_path / "limited.xml"
    file.write_text(LIMITED, encoding="utf-8")
    report = audit(file, 0.5)
    assert report.deviation is not None
    stop, cord = (report.deviation.limits[name] for name in ("rail.limit[0]", "cord.limit"))
    np.testing.assert_allclose([stop.rigid, cord.rigid], np.sqrt([0.4 / 9.81, 0.2 / 9.81]))
    np.testing.assert_allclose([stop.soft, cord.soft], [stop.rigid, cord.rigid], atol=5e-3)
    for limit in (stop, cord):
        assert 1e-4 < limit.penetration[-1] < limit.penetration.max() < 0.1
    (row,) = [line for line in str(report).splitlines() if "rail.limit[0]" in line]
    assert row.split()[-1] == f"{stop.rigid:.5f}"
    assert "left out      tendon: strut" in str(report)
    creep = report.deviation.creeps["elbow"]
    assert creep.seconds == pytest.approx(0.5)
    assert 1e-4 < creep.way < 0.1
    assert draw(report.deviation, report.name, tmp_path).stat().st_size > 10_000


def test_a_file_without_flaws_has_none() -> None:
    assert flaws(mujoco.MjSpec.from_string(LEG)) == []
