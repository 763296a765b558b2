"""What RATTLE needs of a system and of the other policies, in one message each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.small import PENDULUM, QUATERNION, SKATE, WIRE

FREE = {"coordinates": ("a", "b")}


def plain(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - 0.5 * q @ q


def refused(method: Any, system: jm.System, message: str, **policies: Any) -> None:
    q = np.full(system.n, 0.5)
    cases = {case.system: case.params for case in (PENDULUM, QUATERNION, SKATE, WIRE)}
    params = cases.get(system)
    with pytest.raises(ValueError, match=message):
        jm.simulate(
            system, q, q, [0.0, 0.1], params, method=method, steps=jm.FixedSteps(1), **policies
        )


REMEDY = r"use `jm.RK4\(\)`"


@pytest.mark.parametrize(
    ("lagrangian", "message"),
    [
        (lambda q, v, t, p: 0.5 * (1 + q[0] ** 2) * v @ v, "depends on q"),
        (lambda q, v, t, p: -jnp.sqrt(1 - v @ v / 9), "depends on v"),
        (lambda q, v, t, p: 0.5 * (1 + t) * v @ v, "depends on t"),
        (lambda q, v, t, p: 0.5 * v @ v + q[0] * v[1], "gyroscopic"),
        # Without a value at generic states, 1 < t + 2 q < 4.5.
        (lambda q, v, t, p: 0.5 * v @ v * (1 + 0 * q[0]) - jnp.log(-q[0]) * v[0] ** 2, "on q"),
    ],
)
def test_rattle_needs_a_separable_lagrangian(lagrangian: Any, message: str) -> None:
    refused(jm.RATTLE(), jm.System(lagrangian, **FREE), f"RATTLE.*{message}.*{REMEDY}")


def test_rattle_needs_forces_without_velocities() -> None:
    damped = jm.System(plain, force=lambda q, v, t, p: -0.1 * v, **FREE)
    refused(jm.RATTLE(), damped, f"`force` depends on v.*{REMEDY}")
    refused(jm.RATTLE(), QUATERNION.system, f"regular mass matrix.*{REMEDY}")


@pytest.mark.parametrize("method", [jm.RATTLE()], ids=["rattle"])
def test_both_need_ideal_holonomic_constraints(method: Any) -> None:
    refused(method, SKATE.system, "'edge' is Nonholonomic; use `jm.RK4")
    servo = jm.Acceleration(lambda q, v, a, t, p: a[0], "servo")
    refused(method, jm.System(plain, [servo], **FREE), "'servo' is Acceleration; use `jm.RK4")
    friction = jm.System(plain, nonideal=lambda q, v, x, t, p: -v, **FREE)
    refused(method, friction, "ideal constraints, but the system has a force `nonideal`")


@pytest.mark.parametrize("method", [jm.RATTLE()], ids=["rattle"])
def test_both_solve_for_the_constraint_forces_themselves(method: Any) -> None:
    system = PENDULUM.system
    refused(method, system, "`projection` must be left out", projection=jm.Baumgarte(1.0, 1.0))
    refused(method, system, "`formulation` must be left out", formulation=jm.laws.Maggi())
    refused(method, system, "SVD", formulation=jm.laws.UdwadiaKalaba(solver=jm.laws.SVD()))


@pytest.mark.slow
def test_a_closed_over_traced_value_is_accepted() -> None:
    """The requirements are tested at generic values."""

    def end(mass: Any) -> Any:
        system = jm.System(
            lambda q, v, t, p: 0.5 * mass * v @ v - p["g"] * q[1],
            PENDULUM.system.constraints,
            coordinates=("x", "y"),
        )
        sol = jm.simulate(
            system,
            *PENDULUM[2:],
            [0.0, 0.1],
            PENDULUM.params,
            method=jm.RATTLE(),
            steps=jm.FixedSteps(2),
            throw=False,
        )
        return sol.q[-1, 0]

    difference = (end(1.31) - end(1.29)) / 0.02
    np.testing.assert_allclose(jax.grad(end)(1.3), difference, rtol=1e-4)


@pytest.mark.slow
def test_a_force_of_time_and_position_and_a_moving_constraint_are_accepted() -> None:
    pushed = jm.System(plain, force=lambda q, v, t, p: jnp.cos(t) * q, **FREE)
    sol = jm.simulate(
        pushed, [1.0, 0.0], [0.0, 1.0], [0.0, 0.1], method=jm.RATTLE(), steps=jm.FixedSteps(2)
    )
    assert sol.ok
    refused(jm.RATTLE(), WIRE.system, "`force` depends on v")
