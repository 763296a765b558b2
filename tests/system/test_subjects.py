"""A mechanism or a model in the place of its system: in Python, studies, fits and commands."""

import contextlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
import jaxmech.ensemble as je
from jaxmech import parts as jp
from jaxmech.cli.fit import FitStudy, model
from jaxmech.cli.resolve import load_state
from jaxmech.config.toml import read
from jaxmech.errors import StudyError
from jaxmech.identify.table import Table
from jaxmech.interop.as_model import as_model
from jaxmech.interop.mujoco import from_mjcf
from tests.ensemble.studies import arrays

ROD = jp.planar_body("rod", mass="m", inertia=0.1)
HINGE = jp.revolute("hinge", jp.ground, (0, 0), ROD, (-0.5, 0))
SWING = jp.Mechanism([ROD], [HINGE], [jp.gravity()], {"m": 1.0})
TS = jnp.linspace(0.0, 0.5, 6)
FILE = """
import jaxmech.parts as jp

rod = jp.planar_body("rod", mass="m", inertia=0.1)
mech = jp.Mechanism(
    [rod], [jp.revolute("hinge", jp.ground, (0, 0), rod, (-0.5, 0))], [jp.gravity()], {"m": 1.0}
)
"""
STUDY = """
model = "m.py:mech"
size = 4

[times]
end = 0.5
saves = 3

[steps]
per_save = 8

[coordinates]
"hinge.angle" = 0.3

[parameters]
m = { distribution = "normal", sd = 0.1, relative = true }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.py").write_text(FILE)
    (tmp_path / "s.toml").write_text(STUDY)
    return tmp_path


XML = """
<mujoco><worldbody><body name="rod"><joint name="hinge" axis="0 1 0"/>
<inertial pos=".5 0 0" mass="1" diaginertia=".1 .1 .1"/></body></worldbody></mujoco>
"""
BARE = """
system, params, q0 = mech.system, mech.params, [0.3]
"""
SUBJECTS = {
    "system": lambda: SWING.system,
    "mechanism": lambda: SWING,
    "model": lambda: as_model(SWING),
    "robot": lambda: from_mjcf("arm.xml"),
    "ready model": lambda: jm.models.make("double_pendulum_angles"),
}


@pytest.mark.parametrize(
    "kind",
    [
        "mechanism",
        pytest.param("system", marks=pytest.mark.slow),
        pytest.param("robot", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_model_is_taken_everywhere(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "arm.xml").write_text(XML)
    monkeypatch.chdir(folder)
    subject, steps = SUBJECTS[kind](), jm.FixedSteps(4)
    state, params = ([0.3], [0.0]), SWING.params if kind == "system" else None
    sol = jm.simulate(subject, *state, TS, params, steps=steps)
    assert sol.q.shape == (len(TS), 1)
    assert jm.acceleration(subject, *state, params=params).qdd.shape == (1,)
    hanging = jm.analysis.equilibrium(subject, [-1.4], params=params)
    assert jm.analysis.linearize(subject, hanging.q, [0.0], params=params).positions == 1
    checked = jm.analysis.structure(subject, *state, params=params)
    assert checked.ranks.position_freedom == 1
    start = {} if kind != "system" else {"hinge.angle": je.Fixed(0.3)}
    drawn = {"m": je.Fixed(1.0)} if kind == "system" else {}
    times = je.Times(end=0.1, saves=2)
    study = je.Study(
        model=subject, size=1, times=times, steps=steps, coordinates=start, parameters=drawn
    )
    assert je.run_study(study, folder / "out")["status"]["OK"]["count"] == 1
    if kind != "robot":  # whose numbers are no parameters by default
        recording = jm.Recording(TS, sol.q, *state)
        fitted = jm.fit(
            subject, recording, params, free=("m",), initial_states="fixed", steps=steps
        )
        assert fitted.errors.max() < 1e-9


@pytest.mark.slow
def test_a_mechanism_is_the_model_of_a_study(folder: Path) -> None:
    from_file = je.run_study(read(folder / "s.toml", je.Study), folder / "file", folder=folder)
    assert from_file["status"]["OK"]["count"] == 4
    found = arrays(folder / "file")
    assert (found["q"][:, 0, 0] == 0.3).all()
    object_study = je.Study(
        model=SWING,
        size=4,
        times=je.Times(end=0.5, saves=3),
        steps=jm.FixedSteps(8),
        start={"hinge.angle": je.Fixed(0.3)},
        parameters={"m": je.Normal(sd=0.1, relative=True)},
    )
    assert je.run_study(object_study, folder / "object")["model"] == "object"
    assert np.array_equal(arrays(folder / "object")["q"], found["q"])
    with pytest.raises(StudyError, match="it was passed as an object; put it into a file"):
        je.replay(folder / "object", 0)


def test_a_mechanism_starts_from_the_state_beside_it(folder: Path) -> None:
    assert load_state(f"{folder}/m.py:mech")[1].q == pytest.approx([0.0])
    (folder / "m.py").write_text(FILE + "q0 = [0.7]\nv0 = [0.1]\n")
    _, beside = load_state(f"{folder}/m.py:mech")
    assert (beside.q, beside.v) == (pytest.approx([0.7]), pytest.approx([0.1]))


FILES = {"mechanism in a file": "m.py:mech", "system in a file": "m.py:system"}


@pytest.mark.parametrize("kind", [*SUBJECTS, *FILES, "identifiable"])
def test_every_kind_of_model_is_the_model_of_a_fit(kind: str, folder: Path) -> None:
    (folder / "arm.xml").write_text(XML)
    (folder / "m.py").write_text(FILE + BARE)
    made = SUBJECTS | {"identifiable": lambda: jm.identify.Identifiable(SWING)}
    with contextlib.chdir(folder):
        subject = FILES[kind] if kind in FILES else made[kind]()
    study = FitStudy(model=subject, data=Table(file="x.csv", observed=("hinge.angle",), dt=0.1))
    if kind == "system":
        with pytest.raises(StudyError, match=r"python:System is a bare System: .*Identifiable"):
            model(study, folder)
        return
    found = model(study, folder).other
    if "m" in found.params:
        assert found.params == {"m": 1.0}
        assert found.system.coordinates == ("hinge.angle",)
