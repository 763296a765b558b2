"""Failures of trajectories: status, time and message, without effect on other members."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Acceleration, FixedSteps, Holonomic, Status, System, simulate
from jaxmech.errors import SimulationError
from jaxmech.laws import UdwadiaKalaba
from tests.small import PENDULUM

NEVER = 1e9
TS = np.linspace(0.0, 1.0, 11)
Q0, V0 = np.array([0.6, -0.8, 0.0]), np.array([0.8, 0.6, 0.1])
STEPS = FixedSteps(5, times=(0.43,))
OFF = Q0 + np.array([0.01, 0, 0])


def _hazards(q: Any, v: Any, t: Any, p: Any) -> Any:
    mass = jnp.where(t > p["massless"], 0.0, 1.0)
    poison = jnp.where(t > p["poison"], jnp.nan, 0.0) * q[0]
    return 0.5 * (v[0] ** 2 + v[1] ** 2 + mass * v[2] ** 2) - 9.81 * q[1] + poison


# Each failure occurs at its own time, so that one compiled function covers them all.
HAZARDS = System(
    _hazards,
    [
        Holonomic(lambda q, t, p: q[:2] @ q[:2] - jnp.where(t > p["gone"], -1.0, 1.0), "rod"),
        Acceleration(lambda q, v, a, t, p: a[0] - a[0], "nothing"),
        Acceleration(lambda q, v, a, t, p: a[2] - jnp.where(t > p["clash"], 1.0, 2.0), "servo"),
        Acceleration(lambda q, v, a, t, p: p["slaved"] * (a[2] - 2.0), "other servo"),
    ],
    coordinates=("x", "y", "z"),
)
SAFE = {"massless": NEVER, "poison": NEVER, "gone": NEVER, "clash": NEVER, "slaved": 1.0}
DEATHS = {
    "poison": Status.NONFINITE,
    "clash": Status.CONTRADICTORY,
    "gone": Status.PROJECTION_FAILED,
}


def hazards(q: Any, v: Any, p: Any) -> Any:
    return simulate(HAZARDS, q, v, TS, p, steps=STEPS)


many_hazards = jax.jit(jax.vmap(hazards))


def stacked(*members: dict[str, float]) -> dict[str, np.ndarray]:
    return {name: np.array([{**SAFE, **one}[name] for one in members]) for name in SAFE}


@pytest.fixture(scope="module")
def batch() -> Any:
    """Eight members: good, each hazard at t = 0.43, good, an inconsistent start, a NaN, good."""
    p = stacked({}, {"poison": 0.43}, {"clash": 0.43}, {"gone": 0.43}, {}, {}, {}, {})
    q, v = np.stack([Q0] * 8), np.stack([V0] * 8)
    q[5, 0] += 0.01
    v[6, 2] = np.nan
    v[7, 2] = 0.3
    return many_hazards(q, v, p)


@pytest.mark.slow
def test_every_status_is_reached(batch: Any) -> None:
    expected = [
        Status.OK,
        *DEATHS.values(),
        Status.OK,
        Status.INCONSISTENT,
        Status.NONFINITE,
        Status.OK,
    ]
    assert [Status(int(code)) for code in batch.status] == expected
    assert batch.ok.tolist() == [code == Status.OK for code in expected]


def test_failures_come_with_the_time_of_the_last_good_state(batch: Any) -> None:
    """A step ends at t = 0.43, where the functions jump, and the next one fails."""
    nan = np.nan
    np.testing.assert_allclose(
        batch.t_failed, [nan, 0.43, 0.43, 0.43, nan, 0.0, 0.0, nan], atol=1e-12
    )


def test_no_nan_without_a_status(batch: Any) -> None:
    """Good members have none; bad ones have values up to the failure and NaN after it."""
    for k, status in enumerate(batch.status):
        saved = np.hstack([batch.q[k], batch.v[k], batch.energy[k][:, None]])
        known = np.isfinite(saved).all(1)
        reached = (1.0 if status == Status.OK else batch.t_failed[k]) >= TS
        if k != 6:  # which starts with a NaN
            np.testing.assert_array_equal(known, reached)
        audited = np.isfinite(batch.position_residual[k])
        np.testing.assert_array_equal(audited, reached | (k == 6) * (TS == 0))
        assert np.isnan(np.asarray(batch.q[k])[~reached]).all()
        assert np.isnan(batch.t_failed[k]) == (status == Status.OK)


def test_a_failure_does_not_change_earlier_states(batch: Any) -> None:
    for k in (1, 2, 3):
        np.testing.assert_array_equal(batch.q[k][:5], batch.q[0][:5])
        np.testing.assert_array_equal(batch.v[k][:5], batch.v[0][:5])


def test_failed_members_do_not_change_a_bit_of_the_others(batch: Any) -> None:
    v = np.stack([V0] * 8)
    v[7, 2] = 0.3
    good = many_hazards(np.stack([Q0] * 8), v, stacked(*[{}] * 8))
    assert good.ok.all()
    for with_bad, without in zip(jax.tree.leaves(batch), jax.tree.leaves(good), strict=True):
        for k in (0, 4, 7):
            np.testing.assert_array_equal(with_bad[k], without[k])


def test_the_rank_is_that_of_what_was_computed(batch: Any) -> None:
    """Two of the four rows are dependent; a NaN does not count for the rank."""
    assert batch.rank.tolist() == [2, 2, 2, 2, 2, 4, 4, 2]


def test_a_failure_raises_with_the_solution() -> None:
    with pytest.raises(
        SimulationError, match=r"^CONTRADICTORY at t = 0\.43 s: no acceleration satis"
    ) as error:
        hazards(Q0, V0, {**SAFE, "clash": 0.43})
    sol = error.value.solution
    assert sol.status == Status.CONTRADICTORY
    assert np.isfinite(sol.q[:5]).all()
    assert np.isnan(sol.q[5:]).all()
    quiet = simulate(
        HAZARDS,
        Q0,
        V0,
        TS,
        {**SAFE, "clash": 0.43},
        steps=STEPS,
        throw=False,
    )
    np.testing.assert_array_equal(quiet.q, sol.q)


@pytest.mark.slow
def test_an_inconsistent_start_names_the_constraint() -> None:
    with pytest.raises(SimulationError, match="pass it through `assemble` first") as error:
        simulate(HAZARDS, OFF, V0, TS, SAFE, steps=STEPS)
    message = str(error.value)
    assert message.startswith("INCONSISTENT at t = 0 s: the initial state violates")
    assert "Constraint 'rod' has a position residual of 0.0121." in message
    with pytest.raises(SimulationError, match=r"'rod' has a velocity residual of 0\.12\.$"):
        simulate(HAZARDS, Q0, V0 + np.array([0.1, 0, 0]), TS, SAFE, steps=STEPS)
    np.testing.assert_array_equal(error.value.solution.q[0], OFF)
    assert np.isnan(error.value.solution.q[1:]).all()


def test_a_vanishing_mass() -> None:
    """z has a mass only until t = 0.43, and nothing else determines it."""
    system = System(HAZARDS.lagrangian, HAZARDS.constraints[:1], coordinates=("x", "y", "z"))

    def run(formulation: UdwadiaKalaba) -> Any:
        return simulate(
            system, Q0, V0, TS, {**SAFE, "massless": 0.43},
            steps=STEPS, formulation=formulation, throw=False,
        )  # fmt: skip

    sol = run(UdwadiaKalaba())
    assert Status(int(sol.status)) == Status.SINGULAR_MASS
    assert sol.t_failed == pytest.approx(0.43)
    assert np.isfinite(sol.q[:5]).all()
    assert sol.rank == 1


WEIGHTLESS = System(
    lambda q, v, t, p: 0.5 * p["m1"] * v[0] ** 2 + 0.5 * p["m2"] * v[1] ** 2 - 9.81 * q[1],
    [Holonomic(lambda q, t, p: q[0] - q[1], "tie")],
    coordinates=("x", "y"),
)


def test_the_remedy_for_a_singular_mass_works() -> None:
    """M is singular only for these parameters; following the advice of the message works."""
    rest, params = np.zeros(2), {"m1": 2.0, "m2": 0.0}
    with pytest.raises(SimulationError, match=r"pass `UdwadiaKalaba\(singular_mass=True\)`"):
        simulate(WEIGHTLESS, rest, rest, TS, params, steps=FixedSteps(1))
    remedy = UdwadiaKalaba(singular_mass=True)
    sol = simulate(WEIGHTLESS, rest, rest, TS, params, formulation=remedy, steps=FixedSteps(1))
    np.testing.assert_allclose(sol.q[:, 0], -9.81 * TS**2 / 4, atol=1e-14)


def test_nan_parameters_in_a_batch_are_not_reported_as_inconsistent() -> None:
    def run(l: Any) -> Any:  # noqa: E741
        return simulate(
            PENDULUM.system, *PENDULUM[2:], TS, {**PENDULUM.params, "l": l}, steps=FixedSteps(1)
        ).status

    status = jax.jit(jax.vmap(run))(np.array([2.0, np.nan, 2.1, np.inf]))
    assert status.tolist() == [
        Status.OK,
        Status.NONFINITE,
        Status.INCONSISTENT,
        Status.NONFINITE,
    ]


def test_under_jit_nothing_is_raised() -> None:
    run = jax.jit(lambda q: simulate(HAZARDS, q, V0, TS, SAFE, steps=STEPS))
    assert run(OFF).status == Status.INCONSISTENT


def test_a_mass_that_is_lost_by_a_growing_state_is_not_blamed_on_the_system() -> None:
    system = System(
        lambda q, v, t, p: 0.5 * (v @ v + (q @ v) ** 2),
        force=lambda q, v, t, p: 1e3 * q * (1 + q @ q),
        coordinates=("x", "y"),
    )
    with pytest.raises(SimulationError, match=r"SINGULAR_MASS.* had grown to 1e\+09: ") as failed:
        simulate(system, [1.0, 0.3], [0.0, 0.1], np.linspace(0, 1, 11), steps=FixedSteps(50))
    assert "No mass" not in str(failed.value)
