"""The route over MuJoCo reaches the states of `simulate`, as nearly as its method allows."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

import jaxmech as jm
from experiments.speed import mujoco_rollout as route
from experiments.speed.cases import Case, make
from experiments.speed.routes import States

END, STEPS = 0.1, 25
STARTS: Mapping[str, Mapping[str, Any]] = {  # two each, far from rest
    "double_pendulum": {
        "theta1": [2.0, 0.3],
        "theta2": [-1.2, 2.9],
        "omega1": [1.0, -2.0],
        "omega2": [-3.0, 1.0],
    },
    "chain_3": {
        "theta": [[1.0, 1.5, 2.2], [0.1, -2.0, 0.4]],
        "omega": [[-1.0, 2.0, 0.5], [3.0, 0.2, -2.0]],
    },
    "four_bar": {"angle": [0.7, -2.0], "omega": [2.0, -1.5]},
}
PARAMS: Mapping[str, Mapping[str, Any]] = {  # no two alike
    "double_pendulum": {"m1": 1.5, "m2": 0.4, "l1": 0.8, "l2": 1.3, "g": 4.0},
    "chain_3": {"m": np.array([1.5, 0.4, 0.9]), "l": np.array([0.8, 1.3, 0.5]), "g": 4.0},
    "four_bar": {"m": 2.5, "l": 0.7, "g": 4.0},
}


@pytest.fixture
def _mujoco() -> None:
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install 'jaxmech[bench]'")


def varied(name: str, steps: int) -> tuple[Case, np.ndarray, np.ndarray]:
    """Two trajectories to `END` with unequal parameters, and their starts."""
    case = make(name, batch=2, steps=steps, step_size=END / steps)
    case = dataclasses.replace(case, model=dataclasses.replace(case.model, params=PARAMS[name]))
    start = {key: np.array(values) for key, values in STARTS[name].items()}
    q0, v0 = jax.vmap(case.model.initial)(start)
    return case, np.asarray(q0), np.asarray(v0)


def exact(case: Case, q0: np.ndarray, v0: np.ndarray) -> States:
    """The states at the end, by `simulate` with a fine step."""

    def run(q: jax.Array, v: jax.Array) -> jm.Solution:
        ts, model, steps = np.array([0.0, case.end]), case.model, jm.FixedSteps(400)
        return jm.simulate(model.system, q, v, ts, model.params, steps=steps, projection=None)

    solutions = jax.vmap(run)(q0, v0)
    assert not solutions.status.any()
    return np.asarray(solutions.q[:, -1]), np.asarray(solutions.v[:, -1])


def rollout(name: str, steps: int = STEPS) -> States:
    return route.mujoco_rollout(*varied(name, steps)).run()


@pytest.mark.slow
@pytest.mark.usefixtures("_mujoco")
@pytest.mark.parametrize(
    ("name", "tolerance", "order"),
    # The softness of the loop falls with the square of the step.
    [("double_pendulum", 1e-9, 4), ("chain_3", 1e-9, 4), ("four_bar", 1e-7, 2)],
)
def test_mujoco_reaches_the_states_of_simulate(name: str, tolerance: float, order: int) -> None:
    case, q0, v0 = varied(name, STEPS)
    goal = exact(case, q0, v0)
    assert np.abs(goal[0] - q0).max(axis=1).min() > 0.05
    coarse, fine = (
        [np.abs(x - y).max() for x, y in zip(rollout(name, steps), goal, strict=True)]
        for steps in (STEPS, 2 * STEPS)
    )
    assert max(coarse) < tolerance
    np.testing.assert_allclose(np.log2(np.divide(coarse, fine)), order, atol=0.2)
