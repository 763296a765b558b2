"""Motion compared with published solutions and closed forms, to the digits that these have.

The numbers and their sources are in `tests/published/`. Every run uses fixed steps
and the default law, solver and projection; comments after checks are the errors found at first.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from experiments.work_precision.cases import car_axis, rolling_disc, spherical_pendulum
from jaxmech.models import make
from tests import systems
from tests.published import published

acceleration = jax.jit(jm.acceleration, static_argnums=0)


def run(
    system: jm.System, start: Any, ts: Any, params: Any, steps: Any,
    method: Any = jm.DormandPrince5(),  # noqa: B008
) -> jm.Solution:  # fmt: skip
    """The trajectory by steps from save to save, after a check that it stayed on its constraints.

    A single time is the end of a motion from zero.
    """
    q0, v0 = (jnp.asarray(x, float) for x in start)
    ts = jnp.asarray(ts if np.ndim(ts) else [0.0, ts], float)
    steps = jm.FixedSteps(per_save=steps) if isinstance(steps, int) else steps
    sol = jm.simulate(system, q0, v0, ts, params, method=method, steps=steps)
    assert np.max(sol.position_residual) < 1e-12
    assert np.max(sol.velocity_residual) < 1e-11
    return sol


def relative(value: Any, wanted: Any) -> float:
    """The largest relative error of a component."""
    return float(np.max(np.abs(np.asarray(value) / np.asarray(wanted) - 1)))


def absolute(value: Any, wanted: Any) -> float:
    """The largest error of a component."""
    return float(np.max(np.abs(np.asarray(value) - np.asarray(wanted))))


CLOSED_FORMS = {
    "knife_edge_incline": (systems.knife_edge, "qv", 2000),  # 6.4e-13
    "chaplygin_sleigh": (lambda: make("chaplygin_sleigh").system, "qv", 2000),  # 1.4e-14
    "sphere_on_turntable": (systems.ball_on_turntable, "plane", 8000),  # 1.0e-13
    "vertical_coin_on_incline": (systems.vertical_coin, "q", 2000),  # 3.4e-12
    "rolling_disc_steady_turn": (rolling_disc, "q", 2000),  # 2.3e-12
    "spherical_pendulum": (spherical_pendulum, "q", 4000),  # 1.4e-13
    "bead_on_rotating_wire": (systems.rotating_wire, "q", 2000),  # 1.6e-13
    "pendulum_accelerated_pivot": (systems.accelerated_pivot, "q", 2000),  # 1.2e-12
    "two_mass_singular_mass_matrix": (systems.two_masses, "q", 2000),  # 2.6e-13
}


QUICK = ("knife_edge_incline", "rolling_disc_steady_turn", "two_mass_singular_mass_matrix")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CLOSED_FORMS],
)
def test_closed_forms_to_1e_11(name: str) -> None:
    case = published("closed_forms")[name]
    make_system, compared, steps = CLOSED_FORMS[name]
    start = case["q0"], case["v0"]
    sol = run(make_system(), start, case["t_end"], case["params"], steps)
    q, v = sol.q[-1], sol.v[-1]
    choices = {"q": [q], "qv": [q, v], "plane": [q[:2], v[:2]]}
    assert absolute(np.concatenate(choices[compared]), case["exact_final"]) < 1e-11


@pytest.mark.slow
def test_bead_on_rotating_rod_moves_like_the_bead_on_the_wire() -> None:
    """The same motion with the redundant coordinate r and a singular mass matrix."""
    case, model = published("closed_forms")["bead_on_rotating_wire"], make("bead_on_rod")
    params = {"m": 1.3, "omega": case["params"]["W"]}
    start = model.initial({"r": case["q0"][0], "r_rate": case["v0"][0]}, params)
    assert absolute(start[0][:2], case["q0"]) == 0.0
    assert absolute(start[1][:2], case["v0"]) < 1e-15
    sol = run(model.system, start, case["t_end"], params, 2000)
    assert absolute(sol.q[-1, :2], case["exact_final"]) < 1e-11


@pytest.mark.slow
def test_free_rigid_body_spins_by_elliptic_functions() -> None:
    case, model = published("closed_forms")["torque_free_rigid_body"], make("free_body")
    start, J = model.initial(), np.array(case["params"]["J"])
    assert absolute(start, [case["q0"], case["v0"]]) < 1e-16
    sol = run(model.system, start, case["t_end"], {"J": J}, 2000)
    e, e_rate = np.asarray(sol.q[-1]), np.asarray(sol.v[-1])
    conjugate = e * [1, -1, -1, -1]
    w = 2 * product(conjugate, e_rate)[1:]
    momentum = product(product(e, np.array([0.0, *(J * w)])), conjugate)[1:]
    assert absolute(np.concatenate([w, momentum]), case["exact_final"]) < 1e-12  # 7e-15
    assert sol.energy_drift < 1e-13


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of two quaternions."""
    return np.array(
        [a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))]
    )


@pytest.mark.slow
def test_andrews_mechanism_to_nine_digits() -> None:
    """The published positions have 9.6 digits; a converged solution agrees to twelve."""
    case, model = published("andrews"), make("andrews")
    start, params = model.initial(), case["params"]
    assert dict(model.params) == params
    assert absolute(start, [case["q0"], case["v0"]]) < 1e-15
    sol = run(model.system, start, case["t_end"], params, 6000, jm.RK4())
    q, v = sol.q[-1], sol.v[-1]
    converged = np.array(case["converged"])
    assert relative(q, case["published"][:7]) < 1e-9  # 2.7e-10
    assert relative(q, converged[:7]) < 1e-11  # 2.4e-12
    assert relative(v, converged[7:14]) < 1e-9  # 2.4e-10
    motion = acceleration(model.system, q, v, case["t_end"], params)
    assert relative(motion.qdd, converged[14:21]) < 1e-7
    assert relative(motion.multipliers, -converged[21:]) < 1e-7  # the test set has the other sign
    energy = sol.energy - params["mom"] * sol.q[:, 0]
    assert absolute(energy[-1], energy[0]) < 1e-10  # 1.3e-11 of 0.5 J


@pytest.mark.slow
def test_tolerances_alone_give_ten_digits() -> None:
    """Andrews' mechanism and the car axis reach ten digits without a step chosen by hand."""
    method, steps = jm.DormandPrince8(), jm.Adaptive(rtol=1e-12, atol=1e-12)
    case, model = published("andrews"), make("andrews")
    sol = run(model.system, model.initial(), case["t_end"], case["params"], steps, method)
    assert relative(sol.q[-1], case["converged"][:7]) < 1e-10
    case = published("car_axis")
    sol = run(car_axis(), (case["q0"], case["v0"]), case["t_end"], case["params"], steps, method)
    assert relative(sol.q[-1], case["published"][:4]) < 1e-10


def test_andrews_mechanism_starts_with_the_published_acceleration() -> None:
    case, model = published("andrews"), make("andrews")
    motion = acceleration(model.system, *model.initial(), 0.0, model.params)
    np.testing.assert_allclose(motion.qdd, case["a0"], rtol=1e-11, atol=1e-8)
    multipliers = -np.array(case["lambda0"])  # the test set has the other sign
    np.testing.assert_allclose(motion.multipliers, multipliers, rtol=1e-11, atol=1e-10)


@pytest.mark.slow
def test_car_axis_to_eleven_digits() -> None:
    case, system = published("car_axis"), car_axis()
    params = case["params"]
    sol = run(system, (case["q0"], case["v0"]), case["t_end"], params, 12000)
    q, v, digits = sol.q[-1], sol.v[-1], np.array(case["published"])
    assert relative(q, digits[:4]) < 1e-11  # 3.5e-13
    assert relative(v, digits[4:8]) < 1e-8  # 6.3e-10: published to nine digits
    assert relative(v, case["converged"][4:8]) < 1e-9  # 3.2e-11
    motion = acceleration(system, q, v, case["t_end"], params)
    assert relative(motion.multipliers, digits[8:]) < 1e-10  # 3.7e-12, the same sign as ours


@pytest.mark.slow
@pytest.mark.parametrize("name", ["double_pendulum", "double_pendulum_angles"])
def test_double_pendulum_to_nine_digits(name: str) -> None:
    case, model = published("pendula")["double"], make(name)
    theta, omega = final_angles(case)
    first = 1 if name == "double_pendulum_angles" else 0  # the second angle is from the first rod
    q, v = model.initial({
        "theta1": theta[0], "theta2": theta[1] - first * theta[0],
        "omega1": omega[0], "omega2": omega[1] - first * omega[0],
    })  # fmt: skip
    sol = run(model.system, model.initial(), case["t_end"], dict(model.params), 20000)
    assert absolute(sol.q[-1], q) < 1e-9  # 8.6e-12, in angles 5.0e-13
    assert absolute(sol.v[-1], v) < 1e-9  # 4.7e-11, in angles 2.0e-12
    assert sol.energy_drift < 1e-11


@pytest.mark.slow
def test_triple_pendulum_to_ten_digits() -> None:
    case = published("pendula")["triple"]
    model = make("chain", {"links": 3})
    start = {"theta": np.array(case["theta0"]), "omega": np.array(case["omega0"])}
    theta, omega = final_angles(case)
    q, v = model.initial({"theta": theta, "omega": omega})
    sol = run(model.system, model.initial(start), case["t_end"], dict(model.params), 16000)
    assert absolute(sol.q[-1], q) < 1e-10  # 6.7e-13
    assert absolute(sol.v[-1], v) < 1e-10  # 1.6e-12


def final_angles(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Absolute angles and their rates at the end."""
    theta, omega = np.split(np.array(case["theta_omega_final"], float), 2)
    return theta, omega


@pytest.mark.slow
def test_kapitza_pendulum_stays_upside_down() -> None:
    case = published("pendula")["kapitza"]
    params = {name: case[name] for name in ("g", "L", "a", "W")}

    def state(theta: float, omega: float, t: float) -> tuple[np.ndarray, np.ndarray]:
        a, W, L, s, c = case["a"], case["W"], case["L"], np.sin(theta), np.cos(theta)
        q = np.array([L * s, a * np.cos(W * t) - L * c])
        return q, np.array([L * omega * c, -a * W * np.sin(W * t) + L * omega * s])

    start, end = state(case["theta0"], 0.0, 0.0), case["t_end"]
    sol = run(systems.kapitza(), start, end, params, 10000)
    q, v = state(case["theta_final"], case["omega_final"], end)
    assert absolute(sol.q[-1], q) < 1e-11  # 4.7e-14
    assert absolute(sol.v[-1], v) < 1e-10  # 4.2e-13


def test_iftomm_pendulum_over_100_seconds() -> None:
    """RK4 with h = 1 ms, 100,000 steps: about 50 swings without drift off the circle."""
    case, model = published("pendulum"), make("pendulum")
    start, ts = model.initial(), np.linspace(0.0, 100.0, 11)
    assert absolute(start, [case["q0"], case["v0"]]) < 1e-15
    sol = run(model.system, start, ts, dict(model.params), 10000, jm.RK4())
    assert absolute(sol.q[1], case["positions"]["10"]) < 1e-9  # 1.1e-10
    assert absolute(sol.q[10], case["positions"]["100"]) < 1e-9  # 4.5e-10
    assert np.max(sol.position_residual) < 1e-14


@pytest.mark.slow
def test_double_four_bar_passes_its_singular_pose() -> None:
    """IFToMM A02 with N = 2, RK4 with h = 1 ms: collinear several times within the ten seconds."""
    case, model = published("four_bars"), make("four_bars", {"bars": 2})
    start, ts = model.initial(), np.linspace(0.0, 10.0, 11)
    assert absolute(start, [case["q0"], case["v0"]]) < 1e-15
    sol = run(model.system, start, ts, dict(model.params), 1000, jm.RK4())
    head = np.concatenate([2 * sol.q[:, :2], 2 * sol.v[:, :2]], axis=1)
    for t in (1, 2, 4, 5, 10):
        assert absolute(head[t], case["two"][str(t)]) < 1e-9  # 7.8e-11 at t = 10
    assert sol.energy_drift < 1e-9


WHEELS = {  # period [s], mass [kg], length [m] (zero: on a torsion bar), and the published inertia
    "front, about a diameter": (0.787577011406, 0.0, 0.0, 0.0883826870796),
    "rear, about a diameter": (0.796564786052, 0.0, 0.0, 0.0904114316),
    "front, about the axle": (1.4811273727, 2.02, 0.293, 0.149221207),
    "rear, about the axle": (1.36108970039, 3.11, 0.29325, 0.152391251),
}
TORSION_BAR = 5.625237662943  # [N m/rad], calibrated with a rod


def test_inertias_of_bicycle_wheels_from_their_periods() -> None:
    """Wheels on a torsion bar and as compound pendulums, of moorepants/BicycleParameters."""
    swing = jm.System(
        lambda q, v, t, p: (
            0.5 * (p["I"] + p["m"] * p["l"] ** 2) * v[0] ** 2
            + p["m"] * 9.81 * p["l"] * jnp.cos(q[0])
            - 0.5 * p["k"] * q[0] ** 2
        ),
        coordinates={"angle": "rad"},
    )

    def period(inertia: Any, m: Any, length: Any, k: Any) -> Any:
        params = {"I": inertia, "m": m, "l": length, "k": k}
        linear = jm.analysis.linearize(swing, [0.0], [0.0], params)
        return 1 / jm.analysis.modes(linear).frequencies[0]

    @jax.jit
    def correction(inertia: Any, measured: Any, m: Any, length: Any, k: Any) -> Any:
        value, slope = jax.value_and_grad(period)(inertia, m, length, k)
        return (measured - value) / slope

    for name, (measured, m, length, stated) in WHEELS.items():
        inertia = 0.12
        for _ in range(6):
            inertia += correction(inertia, measured, m, length, 0.0 if m else TORSION_BAR)
        # lengths are published to a tenth of a millimetre or worse
        tolerance = 1e-5 if m else 1e-10
        np.testing.assert_allclose(inertia, stated, atol=tolerance, err_msg=name)
