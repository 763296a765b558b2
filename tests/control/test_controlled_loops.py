"""Closed loops of sampled controllers in fits and studies, with constraints and mechanisms."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech.ensemble as je
from jaxmech import Controller, FixedSteps, Recording, controlled, fit, observe, simulate
from jaxmech.cli.main import main
from jaxmech.config.toml import read
from jaxmech.ensemble.plan import planned, require_used, system_digest
from jaxmech.errors import StudyError
from jaxmech.identify import Fit
from jaxmech.parts import Mechanism, gravity, ground, planar_body, revolute
from jaxmech.run import sensitivities
from tests.control.test_sampled import LATE, PENDULUM, torque

TS = np.linspace(0.0, 0.5, 26)
STUDY = """
model = "loop.py:pendulum"
controllers = ["loop.py:pd"]
size = 3

[times]
end = 1.0
saves = 3

[steps]
per_save = 2

[coordinates]
theta = 0.3

[parameters]
g = 9.81
kp = 40.0
lag = { distribution = "uniform", low = 0.0, high = 0.02 }

[observe]
effort = "loop.py:effort"

[events]
weak = { of = "torque", level = -5.0, direction = 1, keep = 1 }
small = { of = "effort", level = 0.5, direction = -1, keep = 1 }
"""
LOOP = """
import jax.numpy as jnp
import jaxmech as jm

pendulum = jm.System(
    lambda q, v, t, p: 0.5 * v[0] ** 2 - p["g"] * jnp.cos(q[0]),
    force=lambda q, v, t, p: p["torque"][None],
    coordinates=("theta",),
)


def torque(measured, memory, t, p):
    q, v = measured
    return -p["kp"] * q[0] - 10.0 * v[0], memory + 1


def effort(q, v, t, p):
    return jnp.abs(p["torque"]) / 10.0 + 0.0 * v[-1]


pd = jm.Controller(torque, 0.02, memory=0, delay="lag")
"""


def recorded(**kept: Any) -> Recording:
    data = simulate(LATE, [0.3], [0.0], TS, {"lag": 0.013}, steps=FixedSteps(4))
    return Recording(TS, np.asarray(data.q[:, :1]), q0=[0.3], v0=[0.0], **kept)


@pytest.mark.slow
def test_a_delay_is_fitted_and_has_sensitivities() -> None:
    ways = {"steps": FixedSteps(4)}
    result = fit(LATE, [recorded()], {"lag": 0.004}, initial_states="fixed", **ways)
    np.testing.assert_allclose(result.params["lag"], 0.013, atol=1e-9)

    def start(lag: Any) -> Any:
        return np.array([0.3]), np.zeros(1), {"lag": lag}

    slopes = sensitivities(LATE, start, 0.013, TS, **ways)
    changed = [
        simulate(LATE, [0.3], [0.0], TS, {"lag": 0.013 + x}, **ways).q[-1, 0] for x in (-1e-6, 1e-6)
    ]
    difference = (changed[1] - changed[0]) / 2e-6
    np.testing.assert_allclose(np.ravel(slopes.q[-1])[0], difference, rtol=1e-5)


def test_a_run_knows_its_controllers() -> None:
    def digest(**changes: Any) -> str:
        controller = Controller(**{"update": torque, "period": 0.02} | changes)
        return system_digest(controlled(PENDULUM, controller), {})

    def other(measured: Any, memory: Any, t: Any, p: Any) -> Any:
        return -41.0 * measured[0][0], memory

    changes = [{}, {"period": 0.03}, {"delay": 0.01}, {"output": 1.0}, {"phase": 0.01}]
    changes += [{"update": other, "name": "torque"}]
    assert len({digest(**change) for change in changes}) == len(changes)
    assert digest() == digest()


def test_a_study_names_its_controllers(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    config = tmp_path / "study.toml"
    config.write_text(STUDY)
    je.run_study(read(config, je.Study), tmp_path / "run", folder=tmp_path)
    results = je.open(tmp_path / "run")
    space: dict[str, Any] = {}
    exec(LOOP, space)
    loop = controlled(space["pendulum"], space["pd"])
    lags = [float(x) for x in results["parameter_lag"]]
    for k, lag in enumerate(lags):
        params = {"g": 9.81, "kp": 40.0, "lag": lag}
        sol = simulate(loop, [0.3], [0.0], [0.0, 0.5, 1.0], params, steps=FixedSteps(2))
        stored = np.concatenate([sol.v, sol.memory], axis=1)  # as in the names of the coordinates
        np.testing.assert_allclose(results["v"][k], stored, rtol=1e-9)
        np.testing.assert_allclose(results["effort"][k], abs(sol["torque"]) / 10.0, rtol=1e-9)
        np.testing.assert_allclose(results["q"][k, :, 1], sol["torque"], rtol=1e-9)
        times = [float(results[f"{name}_times"][k, 0]) for name in ("weak", "small")]
        assert 0.02 < times[0] < 1.0
        np.testing.assert_allclose(times[0], times[1], rtol=1e-10)
    names = ("theta", "torque", "torque.memory", "torque.sample", "torque.pending[0]")
    assert tuple(results["coordinate"].values[:5]) == names
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert tuple(summary["quantiles"]["coordinates"])[:5] == names
    config.write_text(STUDY.replace("loop.py:pd", "loop.py:pid"))
    with pytest.raises(StudyError, match=r"`controllers` is not an attribute .* did you mean `pd`"):
        je.run_study(read(config, je.Study), tmp_path / "other", folder=tmp_path)


UNREAD = """
from dataclasses import replace
from loop import pd
import jaxmech as jm

wrong = replace(pd, name="twist")
inner = jm.Controller(lambda x, memory, t, p: (p["twist"], memory), 0.02, name="torque")
"""
PLACEHOLDER = """
model = "loop.py:pendulum"
size = 4
controllers = ["unread.py:wrong"]

[times]
end = 1.0

[coordinates]
theta = 0.3

[parameters]
g = 9.81
kp = 40.0
lag = 0.013
torque = 0.0
"""


def test_a_controller_whose_output_nothing_reads_is_refused(tmp_path: Path) -> None:
    """The value of a parameter would stay in its place. Another controller may read it, though."""
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "unread.py").write_text(UNREAD)
    config = tmp_path / "study.toml"
    config.write_text(PLACEHOLDER)
    with pytest.raises(StudyError, match="have an output 'twist' that nothing reads"):
        je.run_study(read(config, je.Study), tmp_path / "run", folder=tmp_path)
    both = PLACEHOLDER.replace("wrong", 'wrong", "unread.py:inner').replace("torque = 0.0\n", "")
    config.write_text(both)
    require_used(planned(read(config, je.Study), tmp_path))


FIT = """
model = "pole.py:pole"
controllers = ["loop.py:pd"]
initial_states = "fixed"

[data]
file = "swing.csv"
observed = ["theta", "effort"]
q0 = ["theta"]
v0 = ["rate"]
time = "t"

[steps]
per_save = 2

[parameters]
free = ["kp", "lag"]
"""
POLE = """
import jax.numpy as jnp
import jaxmech as jm
from loop import pendulum

pole = jm.identify.Identifiable(
    pendulum,
    {"g": 9.81, "kp": 36.0, "lag": 0.009, "torque": 0.0},
    observe=lambda q, v, t, p: jnp.stack([q[0], p["torque"] / 10.0]),
)
"""


@pytest.mark.slow
def test_a_gain_and_a_delay_of_a_loop_are_fitted_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "pole.py").write_text(POLE)
    space: dict[str, Any] = {}
    exec(LOOP, space)
    loop = controlled(space["pendulum"], space["pd"])
    ts = np.linspace(0.0, 0.5, 21)
    sol = simulate(loop, [0.3], [0.0], ts, {"g": 9.81, "kp": 40.0, "lag": 0.013},
                   steps=FixedSteps(2))  # fmt: skip
    rows = np.stack([ts, sol["theta"], sol["torque"] / 10.0], axis=1)
    lines = [",".join(map(repr, map(float, row))) + ",0.0" for row in rows]
    (tmp_path / "swing.csv").write_text("\n".join(["t,theta,effort,rate", *lines]))
    config = tmp_path / "fit.toml"
    config.write_text(FIT)
    assert main(["fit", str(config), "--out", str(tmp_path / "run")]) == 0
    result = Fit.load(tmp_path / "run" / "fit.npz")
    np.testing.assert_allclose(result.values, [40.0, 0.013], rtol=1e-6)
    stored = (tmp_path / "run" / "config.toml").read_text()
    assert 'controllers = [\n    "loop.py:pd",\n]' in stored
    assert (tmp_path / "run" / "loop.py").read_text() == LOOP
    config.write_text(FIT.replace("loop.py:pd", "loop.py:pid"))
    assert main(["fit", str(config), "--out", str(tmp_path / "other")]) == 2


def test_a_mechanism_with_a_motor() -> None:
    def motor(measured: Any, memory: Any, t: Any, p: Any) -> Any:
        return p["gain"] * (1.0 - measured) + p["m"] * p["g"] * 0.5 * jnp.cos(measured), memory

    bar = planar_body("bar", mass="m", inertia=0.2)
    hinge = revolute("hinge", ground, (0, 0), bar, (-0.5, 0))

    def drive(q: Any, v: Any, t: Any, p: Any) -> Any:
        return p["motor"] * jnp.ones(1)

    params = {"m": 2.0, "g": 9.81, "gain": 50.0, "motor": 0.0}
    arm = Mechanism([bar], [hinge], [gravity("g"), drive], params)
    angle = Controller(motor, 0.02, measure=lambda q, v, t, p: q[0])
    loop = controlled(arm, angle)
    del params["motor"]
    sol = simulate(loop, [0.9], [0.0], [0.0, 0.2, 0.4], params)
    seen = observe(loop, sol, params)
    inertia, weight = 0.2 + 2.0 * 0.25, 9.81 * np.cos(np.asarray(sol["hinge.angle"]))
    np.testing.assert_allclose(inertia * seen.qdd[:, 0], sol["motor"] - weight, atol=1e-10)
