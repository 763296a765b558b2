"""Studies of systems with quasi-velocities: a ball pendulum and free bodies by their spins."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.cli.main import main
from jaxmech.ensemble import open_results
from jaxmech.ensemble.plan import system_digest
from tests.ensemble.studies import arrays, computed, replayed

FILE = """
from jaxmech import parts as jp

bob = jp.spatial_body("bob", mass=lambda t, p: p["m"], inertia=(0.1, 0.12, 0.05))
ball = jp.spherical("ball", jp.ground, (0, 0, 0), bob, (0, 0, 0.4))
model = jp.Mechanism([bob], [ball], [jp.gravity()], params={"m": 2.0}, velocities="spins")
pendulum = model.system


def pull(q, v, t, p, reactions):
    return reactions.loads["ball"][0]

def spin(q, v, t, p):
    return v @ v
"""

STUDY = """
model = "ball.py:pendulum"
size = 6
block = 2
save = ["q", "v", "energy", "position_residual", "velocity_residual", "qdd", "rates"]

[times]
end = 0.5
saves = 6

[steps]
per_save = 10

[coordinates]
"ball.e0" = 0.98
"ball.e1" = { distribution = "uniform", low = 0.1, high = 0.3 }
"ball.e2" = 0.0
"ball.e3" = 0.0

[velocities]
"ball.spin_z" = { distribution = "uniform", low = 5.0, high = 15.0 }

[parameters]
m = { distribution = "normal", mean = 2.0, sd = 0.1 }

[observe]
turning = { function = "ball.py:spin", keep = "max" }
pull = { function = "ball.py:pull" }

[events]
turns = { of = "ball.spin_x", keep = 1 }

[statistics]
rate = { statistic = "moments", of = "v" }
roll = { statistic = "moments", of = "ball.spin_z" }
"""


def pendulum() -> jm.System:
    """The same system, written in rates."""
    mass, inertia = (lambda t, p: p["m"]), (0.1, 0.12, 0.05)
    bob = jp.spatial_body("bob", mass=mass, inertia=inertia)
    ball = jp.spherical("ball", jp.ground, (0, 0, 0), bob, (0, 0, 0.4))
    params = {"m": 2.0}
    return jp.Mechanism([bob], [ball], [jp.gravity()], params=params, velocities="spins").system


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, beside its configuration."""
    return computed(tmp_path_factory.mktemp("spins"), STUDY, ball=FILE)


def test_trajectories_are_those_of_simulate(run: Path) -> None:
    """From the drawn angles, spins and masses; and the balance of forces on the ball."""
    results, found, system = open_results(run), arrays(run), pendulum()
    assert tuple(results.group["velocity"][...]) == system.velocities
    assert found["v"].shape == found["qdd"].shape == (6, 6, 3)
    assert results.group["rates"].metadata.dimension_names[2] == "coordinate"
    assert results.group["v"].metadata.dimension_names[2] == "velocity"
    ts = jnp.linspace(0.0, 0.5, 6)
    for k in (5,):
        params = {"m": found["parameter_m"][k]}
        guess = jnp.array([0.98, found["coordinate_ball.e1"][k], 0.0, 0.0])
        spins = jnp.array([0.0, 0.0, found["velocity_ball.spin_z"][k]])
        q0, v0 = jm.assemble(system, guess, spins, 0.0, params)
        sol = jm.simulate(system, q0, v0, ts, params, steps=jm.FixedSteps(10))
        np.testing.assert_allclose(found["q"][k], sol.q, atol=1e-12)
        np.testing.assert_allclose(found["v"][k], sol.v, atol=1e-11)
        T = [system.kinematics(q, t, params) for q, t in zip(sol.q, ts, strict=True)]
        rates = np.einsum("tnk,tk->tn", T, sol.v)
        np.testing.assert_allclose(found["rates"][k], rates, atol=1e-11)
        loads = jm.observe(system, sol, params)
        np.testing.assert_allclose(found["qdd"][k], loads.qdd, atol=1e-9)
        np.testing.assert_allclose(found["pull"][k], loads.loads["ball"][0], atol=1e-9)
        np.testing.assert_allclose(found["turning"][k], (sol.v**2).sum(1).max(), rtol=1e-12)
    assert (found["turns_count"] > 0).any()
    rates = results.statistics["rate"]["mean"]
    np.testing.assert_allclose(rates, found["v"].mean(0), rtol=1e-12)
    np.testing.assert_allclose(results.statistics["roll"]["mean"], rates[:, 2], rtol=1e-12)


@pytest.mark.slow
def test_a_trajectory_is_replayed_and_reported(run: Path) -> None:
    again = replayed(run, 3)
    assert all(again.compared.values())
    assert {"q", "v", "rates"} <= again.compared.keys()
    assert main(["report", str(run)]) == 0
    assert "ball.spin_z" in (run / "report.html").read_text()


@pytest.mark.slow
def test_other_kinematics_are_another_model() -> None:
    """A run is not continued where the functions of the velocities have changed."""
    system = pendulum()
    other = replace(system, kinematics=lambda q, t, p: 2 * system.kinematics(q, t, p))
    assert system_digest(system, {"m": 2.0}) != system_digest(other, {"m": 2.0})
