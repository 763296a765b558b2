"""Systems sent to other processes."""

import copy
import multiprocessing
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System, models, parts, simulate
from jaxmech.integrate import DormandPrince5


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1]


def rod(q: Any, t: Any, p: Any) -> Any:
    return (q @ q - p["l"] ** 2) / 2


PENDULUM = System(lagrangian, [Holonomic(rod)], coordinates=("x", "y"))


def end(system: System) -> list[float]:
    """The final state of a short swing."""
    with jax.enable_x64(True):
        params = {"m": 1.0, "l": 1.0, "g": 9.81}
        ts = jnp.linspace(0.0, 0.1, 3)
        sol = simulate(
            system, [1.0, 0.0], [0.0, 0.0], ts, params, method=DormandPrince5(), steps=FixedSteps(1)
        )
        return sol.q[-1].tolist()


def hanging() -> System:
    body = parts.planar_body("bar", mass="m", inertia="I")
    joint = parts.revolute("A", parts.ground, (0, 0), body, (-0.5, 0))
    params = {"m": 1.0, "I": 0.1, "g": 9.81}
    return parts.Mechanism([body], [joint], [parts.gravity("g")], params).system


@pytest.mark.parametrize("name", models.CATALOGUE)
def test_models_come_back_as_the_same_system(name: str) -> None:
    system = models.make(name, {}).system
    assert pickle.loads(pickle.dumps(system)) == system


def test_a_system_of_parts_comes_back() -> None:
    system = hanging()
    assert pickle.loads(pickle.dumps(system)) == system


def test_another_process_computes_the_same_after_use() -> None:
    here = end(PENDULUM)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(end, (PENDULUM,))
    np.testing.assert_array_equal(there, here)


def test_what_is_not_importable_is_named() -> None:
    system = System(lambda q, v, t, p: v @ v, coordinates=("x", "y"))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(system)
    assert copy.deepcopy(system) is system
