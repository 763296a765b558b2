"""`simulate`: its audit, its precision, and the motion of small systems in closed form."""

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, Projection, System, assemble, simulate
from jaxmech.laws import LDL, QR, SVD, UdwadiaKalaba
from jaxmech.models import pendulum
from tests.small import MIXED, OSCILLATOR, PENDULUM, REDUNDANT

TS = np.linspace(0.0, 1.0, 11)


def test_audit_of_a_good_run() -> None:
    """Rank, residuals and energy, also with integers among the parameters."""
    sol = simulate(
        PENDULUM.system, *PENDULUM[2:], TS, {"m": 1, "g": 9.81, "l": 2}, steps=FixedSteps(10)
    )
    assert sol.rank == 1
    assert sol.position_residual.shape == sol.velocity_residual.shape == TS.shape
    energy = np.sum(np.asarray(sol.v) ** 2, 1) / 2 + 9.81 * np.asarray(sol.q)[:, 1]
    np.testing.assert_allclose(sol.energy, energy, rtol=1e-14)
    assert sol.energy_drift == pytest.approx(np.abs(energy - energy[0]).max(), rel=1e-6)
    assert 0 < sol.energy_drift < 1e-6


@pytest.mark.slow
def test_energy_drift_is_nan_where_energy_is_not_conserved() -> None:
    sol = simulate(MIXED.system, *MIXED[2:], TS, MIXED.params, steps=FixedSteps(10))
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


@pytest.mark.filterwarnings("ignore::jaxmech.compiler.NativeCodeWarning")
def test_redundant_rows_and_solvers_give_the_same_motion() -> None:
    runs = [simulate(PENDULUM.system, *PENDULUM[2:], TS, PENDULUM.params, steps=FixedSteps(1))]
    for solver in (LDL(), QR(), SVD()):
        law, projection = UdwadiaKalaba(solver), Projection(solver=solver)
        policies = {"formulation": law, "projection": projection, "steps": FixedSteps(1)}
        runs.append(simulate(REDUNDANT.system, *REDUNDANT[2:], TS, REDUNDANT.params, **policies))
    for run in runs[1:]:
        np.testing.assert_allclose(run.q, runs[0].q, atol=1e-12)
        np.testing.assert_allclose(run.v, runs[0].v, atol=1e-12)
        assert run.rank == 1


@pytest.mark.slow
def test_single_precision_stays_single() -> None:
    """Double constants in functions, and double parameters and times, do not promote the result."""
    g = np.float64(9.81)
    system = System(
        lambda q, v, t, p: 0.5 * v @ v - g * q[1],
        [Holonomic(lambda q, t, p: q @ q - np.float64(4.0), "rod")],
        force=lambda q, v, t, p: -np.float64(0.1) * v * p["c"],
        coordinates=("x", "y"),
    )
    q, v = (x.astype(np.float32) for x in PENDULUM[2:])
    sol = simulate(system, q, v, TS, {"c": np.float64(2.0)}, steps=FixedSteps(2))
    floats = {x.dtype for x in jax.tree.leaves(sol) if jnp.issubdtype(x.dtype, jnp.floating)}
    assert floats == {np.dtype("float32")}
    double = simulate(system, *PENDULUM[2:], TS, {"c": 2.0}, steps=FixedSteps(2))
    np.testing.assert_allclose(sol.q, double.q, atol=1e-5)
    assert sol.position_residual.max() < 1e-5


def test_the_same_system_is_compiled_once() -> None:
    """Also for new values and other types of numbers; a new policy is compiled separately."""
    traces = []

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        traces.append(1)
        return 0.5 * v @ v - p["g"] * q[1]

    def run(q: Any, g: Any, **policies: Any) -> int:
        system = System(lagrangian, PENDULUM.system.constraints, coordinates=("x", "y"))
        simulate(
            system, q, [0.8, 0.6], TS, {"g": g, "l": 2.0}, **{"steps": FixedSteps(1), **policies}
        )
        return len(traces)

    first = run(PENDULUM.q, 9.81)
    assert run(jnp.asarray(-PENDULUM.q), np.float32(1.6)) == first
    assert run([1.2, -1.6], 0.0, projection=Projection()) == first
    assert run(PENDULUM.q, 9.81, steps=FixedSteps(2)) > first


class Spring:
    """A spring of mass one, whose stiffness can change."""

    def __init__(self, k: float) -> None:
        self.k = k

    def force(self, q: Any, v: Any, t: Any, p: Any) -> Any:
        return -self.k * q


@pytest.mark.slow
def test_a_changed_attribute_is_compiled_again() -> None:
    """For a new and for the same system: alone, as a batch, under `jit` and in a derivative."""
    spring, ts = Spring(1.0), np.linspace(0.0, 1.0, 3)

    def oscillator() -> System:
        return System(free, force=spring.force, coordinates=("x",))

    same = oscillator()

    def end(system: System, q: Any) -> Any:
        return simulate(system, q, jnp.zeros(1), ts, steps=FixedSteps(8)).q[-1, 0]

    q = jnp.ones(1)
    for k in (1.0, 4.0, 1.0):
        spring.k = k
        for system in (same, oscillator()):
            ends = [
                end(system, q),
                jax.jit(partial(end, system))(q),
                *jax.vmap(partial(end, system))(jnp.stack([q, q])),
                jax.grad(partial(end, system))(q)[0],
            ]
            np.testing.assert_allclose(ends, np.cos(k**0.5), atol=1e-5)
            np.testing.assert_allclose(system.equations(q, q).Q, -k)


def free(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2


@pytest.mark.filterwarnings("error:the integration error is about")
def test_without_double_precision() -> None:
    """With the defaults of JAX all results are float32, without warnings."""
    model, ts = pendulum(), np.linspace(0.0, 1.0, 101)
    with jax.enable_x64(False):
        q, v = assemble(model.system, [0.6, -0.81], [0.8, 0.6], 0.0, model.params)
        sol = simulate(model.system, q, v, ts, model.params)
        slope = jax.grad(
            lambda g: simulate(model.system, q, v, ts, {**model.params, "g": g}).q[-1, 0]
        )(9.81)
    kinds = {leaf.dtype.name for leaf in jax.tree.leaves((sol, slope))}
    assert kinds == {"float32", "int32", "uint32"}
    assert sol.status == 0
    assert sol.position_residual.max() < 1e-6
    assert abs(slope) > 1e-3


@pytest.mark.slow
def test_systems_that_close_over_traced_values_work() -> None:
    """Parameters should be arguments, but a system made inside a transformation works too."""

    def end(mass: Any, axis: Any) -> Any:
        system = System(
            lambda q, v, t, p: 0.5 * mass * v[0] ** 2 + 0.5 * v[1] ** 2 - 9.81 * q[axis] - q[1],
            coordinates=("x", "y"),
        )
        return simulate(system, *OSCILLATOR[2:], TS[:3], None, steps=FixedSteps(1)).q[-1]

    masses, axes = np.array([2.0, 4.0]), np.array([0, 1])
    t = TS[2]
    expected = [
        [1.0 - 9.81 / 2 * t**2 / 2, 3 * t - t**2 / 2],
        [1.0, 3 * t - 10.81 * t**2 / 2],
    ]
    np.testing.assert_allclose(jax.vmap(end)(masses, axes), expected, rtol=1e-14)
    slope = jax.grad(lambda m: end(m, 0)[0])(2.0)
    assert slope == pytest.approx(9.81 * t**2 / 2 / 4)


def test_a_first_call_compiles_no_conversions(caplog: pytest.LogCaptureFixture) -> None:
    """XLA takes tens of milliseconds for each program, also for one that converts a number."""
    names = tuple("abcdefghijk")  # eleven numbers, which no other test converts
    system = System(lambda q, v, t, p: p["m"] * (v @ v / 2 - q[1]), coordinates=names)
    q, v, ts = jnp.zeros(11), jnp.ones(11), jnp.linspace(0.0, 1.0, 13)
    simulate(OSCILLATOR.system, *OSCILLATOR[2:], ts, OSCILLATOR.params)  # once in a process
    with jax.log_compiles(), caplog.at_level("WARNING"):
        simulate(system, q, v, ts, {"m": 2.0})
    compiled = {*re.findall(r"Compiling jit\((\w+)\)", caplog.text)}
    assert compiled - {"stage"} == {
        "_motion",
        "_trial",
        "mass_and_rows",
    }  # jax 0.12 stages every array
