"""The verb: its statuses, the errors it raises, its audit, and what it leaves alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    LDL,
    QR,
    RK4,
    SVD,
    Acceleration,
    Holonomic,
    Projection,
    SimulationError,
    Status,
    System,
    UdwadiaKalaba,
    simulate,
)
from tests.small import MASSLESS, MIXED, OSCILLATOR, PENDULUM, QUATERNION, REDUNDANT, SKATE

NEVER = 1e9
TS = np.linspace(0.0, 1.0, 11)
Q0, V0 = np.array([0.6, -0.8, 0.0]), np.array([0.8, 0.6, 0.1])


def _hazards(q: Any, v: Any, t: Any, p: Any) -> Any:
    mass = jnp.where(t > p["massless"], 0.0, 1.0)
    poison = jnp.where(t > p["poison"], jnp.nan, 0.0) * q[0]
    return 0.5 * (v[0] ** 2 + v[1] ** 2 + mass * v[2] ** 2) - 9.81 * q[1] + poison


# Each hazard strikes after a time of its own, so that one compiled function meets them all.
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
    return simulate(HAZARDS, q, v, TS, p, method=RK4(5))


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
    """The steps are 0.02 long: the one from 0.42 to 0.44 fails, and is found by its last stage."""
    nan = np.nan
    np.testing.assert_allclose(batch.t_failed, [nan, 0.42, 0.42, 0.42, nan, 0.0, 0.0, nan], atol=1e-12)


def test_no_nan_without_a_status(batch: Any) -> None:
    """Good members have none; bad ones are saved up to the failure and NaN from there on."""
    for k, status in enumerate(batch.status):
        saved = np.hstack([batch.q[k], batch.v[k], batch.energy[k][:, None]])
        known = np.isfinite(saved).all(1)
        reached = TS <= (1.0 if status == Status.OK else batch.t_failed[k])
        if k != 6:  # which starts with a NaN
            np.testing.assert_array_equal(known, reached)
        np.testing.assert_array_equal(np.isfinite(batch.position_residual[k]), reached | (k == 6) * (TS == 0))
        assert np.isnan(np.asarray(batch.q[k])[~reached]).all()
        assert np.isnan(batch.t_failed[k]) == (status == Status.OK)


def test_before_its_failure_a_trajectory_is_as_without_it(batch: Any) -> None:
    for k in (1, 2, 3):
        np.testing.assert_array_equal(batch.q[k][:5], batch.q[0][:5])
        np.testing.assert_array_equal(batch.v[k][:5], batch.v[0][:5])


def test_bad_members_leave_the_others_alone_bit_for_bit(batch: Any) -> None:
    v = np.stack([V0] * 8)
    v[7, 2] = 0.3
    good = many_hazards(np.stack([Q0] * 8), v, stacked(*[{}] * 8))
    assert good.ok.all()
    for with_bad, without in zip(jax.tree.leaves(batch), jax.tree.leaves(good), strict=True):
        for k in (0, 4, 7):
            np.testing.assert_array_equal(with_bad[k], without[k])


def test_the_rank_is_that_of_what_was_computed(batch: Any) -> None:
    """Two of the four rows are dependent; a NaN says nothing about the rank."""
    assert batch.rank.tolist() == [2, 2, 2, 2, 2, 4, 4, 2]


def test_a_failure_raises_with_the_solution() -> None:
    with pytest.raises(SimulationError, match=r"^CONTRADICTORY at t = 0\.42 s: no acceleration satis") as error:
        hazards(Q0, V0, {**SAFE, "clash": 0.43})
    sol = error.value.solution
    assert sol.status == Status.CONTRADICTORY
    assert np.isfinite(sol.q[:5]).all()
    assert np.isnan(sol.q[5:]).all()
    quiet = simulate(HAZARDS, Q0, V0, TS, {**SAFE, "clash": 0.43}, method=RK4(5), throw=False)
    np.testing.assert_array_equal(quiet.q, sol.q)


def test_an_inconsistent_start_names_the_constraint() -> None:
    with pytest.raises(SimulationError, match="pass it through `assemble` first") as error:
        simulate(HAZARDS, Q0 + [0.01, 0, 0], V0, TS, SAFE, method=RK4(5))
    message = str(error.value)
    assert message.startswith("INCONSISTENT at t = 0 s: the initial state violates")
    assert "Constraint 'rod' has a position residual of 0.0121." in message
    with pytest.raises(SimulationError, match=r"'rod' has a velocity residual of 0\.12\.$"):
        simulate(HAZARDS, Q0, V0 + [0.1, 0, 0], TS, SAFE, method=RK4(5))
    np.testing.assert_array_equal(error.value.solution.q[0], Q0 + [0.01, 0, 0])
    assert np.isnan(error.value.solution.q[1:]).all()


def test_a_vanishing_mass() -> None:
    """z has a mass only until t = 0.43, and nothing else that would determine it."""
    system = System(HAZARDS.lagrangian, HAZARDS.constraints[:1], coordinates=("x", "y", "z"))

    def run(formulation: UdwadiaKalaba) -> Any:
        return simulate(
            system, Q0, V0, TS, {**SAFE, "massless": 0.43},
            method=RK4(5), formulation=formulation, throw=False,
        )  # fmt: skip

    sol = run(UdwadiaKalaba())
    assert Status(int(sol.status)) == Status.SINGULAR_MASS
    assert sol.t_failed == pytest.approx(0.42)
    assert np.isfinite(sol.q[:5]).all()
    assert sol.rank == 1


WEIGHTLESS = System(
    lambda q, v, t, p: 0.5 * p["m1"] * v[0] ** 2 + 0.5 * p["m2"] * v[1] ** 2 - 9.81 * q[1],
    [Holonomic(lambda q, t, p: q[0] - q[1], "tie")],
    coordinates=("x", "y"),
)


def test_the_remedy_for_a_singular_mass_works() -> None:
    """M is singular for these parameters, not for most: what the message advises helps."""
    rest, params = np.zeros(2), {"m1": 2.0, "m2": 0.0}
    with pytest.raises(SimulationError, match=r"pass `UdwadiaKalaba\(singular_mass=True\)`"):
        simulate(WEIGHTLESS, rest, rest, TS, params)
    remedy = UdwadiaKalaba(singular_mass=True)
    sol = simulate(WEIGHTLESS, rest, rest, TS, params, formulation=remedy)
    np.testing.assert_allclose(sol.q[:, 0], -9.81 * TS**2 / 4, atol=1e-14)


def test_parameters_that_are_nan_in_a_batch_are_not_called_inconsistent() -> None:
    def run(l: Any) -> Any:  # noqa: E741
        return simulate(PENDULUM.system, *PENDULUM[2:], TS, {**PENDULUM.params, "l": l}).status

    status = jax.jit(jax.vmap(run))(np.array([2.0, np.nan, 2.1, np.inf]))
    assert status.tolist() == [
        Status.OK,
        Status.NONFINITE,
        Status.INCONSISTENT,
        Status.NONFINITE,
    ]


def test_audit_of_a_good_run() -> None:
    """Rank, residuals and energy of whole numbers among the parameters too."""
    sol = simulate(PENDULUM.system, *PENDULUM[2:], TS, {"m": 1, "g": 9.81, "l": 2}, method=RK4(10))
    assert sol.rank == 1
    assert sol.position_residual.shape == sol.velocity_residual.shape == TS.shape
    energy = np.sum(np.asarray(sol.v) ** 2, 1) / 2 + 9.81 * np.asarray(sol.q)[:, 1]
    np.testing.assert_allclose(sol.energy, energy, rtol=1e-14)
    assert sol.energy_drift == pytest.approx(np.abs(energy - energy[0]).max(), rel=1e-6)
    assert 0 < sol.energy_drift < 1e-6


def test_energy_drift_is_left_open_where_energy_is_not_conserved() -> None:
    sol = simulate(MIXED.system, *MIXED[2:], TS, MIXED.params, method=RK4(10))
    assert sol.ok
    assert np.isnan(sol.energy_drift)
    assert np.isfinite(sol.energy).all()
    assert sol.rank == 4
    x, y, z, phi, _ = np.asarray(sol.q).T
    vx, vy, _, vphi, vwheel = np.asarray(sol.v).T
    np.testing.assert_allclose(z, 0.1 * np.sin(x) * y + 0.2 * TS**2, atol=1e-13)
    np.testing.assert_allclose(vx * np.sin(phi), vy * np.cos(phi), atol=1e-12)
    np.testing.assert_allclose(np.hypot(vx, vy), 1 + TS, atol=1e-12)
    # the servo integrated: v_wheel = w sin t + (v_phi^2 - v_phi(0)^2) / 2
    servo = MIXED.params["w"] * np.sin(TS) + (vphi**2 - vphi[0] ** 2) / 2
    np.testing.assert_allclose(vwheel, servo, atol=1e-7)


def test_redundant_rows_and_solvers_give_the_same_motion() -> None:
    runs = [simulate(PENDULUM.system, *PENDULUM[2:], TS, PENDULUM.params)]
    for solver in (LDL(), QR(), SVD()):
        law, projection = UdwadiaKalaba(solver), Projection(solver=solver)
        runs.append(
            simulate(
                REDUNDANT.system, *REDUNDANT[2:], TS, REDUNDANT.params,
                formulation=law, projection=projection,
            )  # fmt: skip
        )
    for run in runs[1:]:
        np.testing.assert_allclose(run.q, runs[0].q, atol=1e-12)
        np.testing.assert_allclose(run.v, runs[0].v, atol=1e-12)
        assert run.rank == 1


def test_a_skate_on_a_slope_in_closed_form() -> None:
    """Nonholonomic: x'' = g cos^2 phi - ..., speed u' = g cos(phi0 + w t) along the blade."""
    p, w = SKATE.params, SKATE.v[2]
    sol = simulate(SKATE.system, *SKATE[2:], TS, p, method=RK4(20))
    phi = SKATE.q[2] + w * TS
    u = 1.0 + p["g"] / w * (np.sin(phi) - np.sin(SKATE.q[2]))
    np.testing.assert_allclose(sol.q[:, 2], phi, rtol=1e-14)
    np.testing.assert_allclose(sol.v[:, 0], u * np.cos(phi), atol=1e-9)
    np.testing.assert_allclose(sol.v[:, 1], u * np.sin(phi), atol=1e-9)
    assert sol.velocity_residual.max() < 1e-14
    assert sol.energy_drift < 1e-8


def test_a_singular_mass_in_closed_form() -> None:
    """With x = 2 s + d: m (3/2)^2 x'' + k x = 0 for x alone."""
    p = MASSLESS.params
    sol = simulate(MASSLESS.system, *MASSLESS[2:], TS, p, method=RK4(20))
    w = np.sqrt(p["k"] / p["m"] / 2.25)
    x = 1.1 * np.cos(w * TS) - 0.4 / w * np.sin(w * TS)
    np.testing.assert_allclose(sol.q, np.stack([x, (x - p["d"]) / 2], 1), atol=1e-9)
    assert sol.energy_drift < 1e-9


def test_a_body_with_a_singular_mass() -> None:
    """The unit quaternion keeps its length, and the energy is conserved."""
    sol = simulate(QUATERNION.system, *QUATERNION[2:], TS, QUATERNION.params, method=RK4(10))
    assert sol.ok
    assert sol.rank == 1
    np.testing.assert_allclose(np.sum(np.asarray(sol.q) ** 2, 1), 1.0, atol=1e-14)
    assert sol.energy_drift < 1e-8


def test_single_precision_stays_single() -> None:
    """With numpy's double constants in the functions, and double parameters and times."""
    g = np.float64(9.81)
    system = System(
        lambda q, v, t, p: 0.5 * v @ v - g * q[1],
        [Holonomic(lambda q, t, p: q @ q - np.float64(4.0), "rod")],
        force=lambda q, v, t, p: -np.float64(0.1) * v * p["c"],
        coordinates=("x", "y"),
    )
    q, v = (x.astype(np.float32) for x in PENDULUM[2:])
    sol = simulate(system, q, v, TS, {"c": np.float64(2.0)}, method=RK4(2))
    floats = [leaf.dtype for leaf in jax.tree.leaves(sol) if leaf.dtype != np.int32]
    assert set(floats) == {np.dtype("float32")}
    double = simulate(system, *PENDULUM[2:], TS, {"c": 2.0}, method=RK4(2))
    np.testing.assert_allclose(sol.q, double.q, atol=1e-5)
    assert sol.position_residual.max() < 1e-5


def test_under_jit_nothing_is_raised() -> None:
    run = jax.jit(lambda q: simulate(HAZARDS, q, V0, TS, SAFE, method=RK4(5)))
    assert run(Q0 + [0.01, 0, 0]).status == Status.INCONSISTENT


def test_systems_that_close_over_traced_values_work() -> None:
    """Parameters should be arguments; made inside a transformation, a system still is right."""

    def end(mass: Any, axis: Any) -> Any:
        system = System(
            lambda q, v, t, p: 0.5 * mass * v[0] ** 2 + 0.5 * v[1] ** 2 - 9.81 * q[axis] - q[1],
            coordinates=("x", "y"),
        )
        return simulate(system, *OSCILLATOR[2:], TS[:3], None).q[-1]

    masses, axes = np.array([2.0, 4.0]), np.array([0, 1])
    t = TS[2]
    expected = [
        [1.0 - 9.81 / 2 * t**2 / 2, 3 * t - t**2 / 2],
        [1.0, 3 * t - 10.81 * t**2 / 2],
    ]
    np.testing.assert_allclose(jax.vmap(end)(masses, axes), expected, rtol=1e-14)
    slope = jax.grad(lambda m: end(m, 0)[0])(2.0)
    assert slope == pytest.approx(9.81 * t**2 / 2 / 4)
