"""Linearizations against differences of the constrained motion, closed forms, and bad input."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

import jaxmech as jm
from jaxmech.analysis import Linearization, linearize
from jaxmech.compiler.frontend.jaxprs import equations_of
from tests.small import CASES, PENDULUM, REDUNDANT, SKATE, Case

HANGING = np.array([0.0, -2.0])
REST = np.zeros(2)


def accelerations(case: Case, q: Any, v: Any) -> np.ndarray:
    """qdd of M qdd - A^T lambda = Q, A qdd = b by least squares."""
    eom = jax.jit(case.system.equations)(q, v, 0.0, case.params)
    M, Q, A, b = (np.asarray(x) for x in (eom.M, eom.Q, eom.A, eom.b))
    whole = np.block([[M, -A.T], [A, np.zeros((len(b), len(b)))]])
    return np.linalg.lstsq(whole, np.concatenate([Q, b]), rcond=1e-9)[0][: len(Q)]


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("skate", "wire", "massless", "quaternion", "mixed")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["redundant", *SLOW])
def test_small_deviations_from_any_motion_agree_with_differences(name: str) -> None:
    case = CASES[name]
    found = linearize(case.system, case.q, case.v, case.params, steady=False)
    small, k = found.reduced, found.positions
    for z in np.random.default_rng(0).normal(size=(4, found.space.A.shape[0])):
        dq, dv = (np.asarray(x) for x in found.deviation(z))
        h = 1e-5
        up, down = (accelerations(case, case.q + s * dq, case.v + s * dv) for s in (h, -h))
        rate = np.asarray(found.space.A) @ z
        np.testing.assert_allclose(small.Z.T @ dv, rate[:k], atol=1e-12)
        u_rate = small.Y.T @ ((up - down) / (2 * h) - small.T @ rate[:k])
        np.testing.assert_allclose(u_rate, rate[k:], atol=1e-7)


@pytest.mark.slow
def test_geometric_stiffness_is_all_that_restores_a_pendulum() -> None:
    found = linearize(PENDULUM.system, HANGING, REST, PENDULUM.params)
    m, g, l = (PENDULUM.params[name] for name in "mgl")  # noqa: E741
    np.testing.assert_allclose(found.full.geometric, m * g / l * np.eye(2), rtol=1e-14)
    np.testing.assert_allclose(found.full.multipliers, [-m * g / l], rtol=1e-14)
    np.testing.assert_allclose(found.reduced.K, [[m * g / l]], rtol=1e-14)
    assert not np.any(found.reduced.C)


def test_state_space_is_what_scipy_takes() -> None:
    """A force on x of the hanging pendulum: x'' + g/l x = F/m."""
    params = {**PENDULUM.params, "l": 2.0}
    found = linearize(
        PENDULUM.system,
        HANGING,
        REST,
        params,
        inputs={"push": "x", "turn": lambda q, v, t, p: jnp.stack([-q[1], q[0]]), "weight": "m"},
        outputs={"x": "x", "speed": lambda q, v, t, p: v[0], "p": lambda q, v, t, p: p["m"] * 3},
    )
    assert (found.inputs, found.outputs) == (("push", "turn", "weight"), ("x", "speed", "p"))
    plant = scipy.signal.StateSpace(*(np.asarray(x) for x in found.space))
    ts = np.linspace(0.0, 1.0, 11)
    _, y, _ = scipy.signal.lsim(plant, np.eye(3)[[0] * 11], ts)
    omega = np.sqrt(9.81 / 2)
    np.testing.assert_allclose(
        y[:, 0], (1 - np.cos(omega * ts)) / (params["m"] * omega**2), atol=1e-12
    )
    static = np.asarray(found.space.D) - np.asarray(found.space.C) @ np.linalg.solve(
        found.space.A, found.space.B
    )
    s = 1.7j
    np.testing.assert_allclose(
        found.space.C @ np.linalg.solve(s * np.eye(2) - found.space.A, found.space.B)
        + found.space.D,
        np.array([[1.0, 2.0, 0.0], [s, 2 * s, 0.0], [0, 0, 3 * params["m"] * (s**2 + 9.81 / 2)]])
        / (params["m"] * (s**2 + 9.81 / 2)),
        atol=1e-13,
    )
    np.testing.assert_allclose(static[0, 0], 2 / (params["m"] * 9.81))


def test_batches_and_redundant_rows() -> None:
    """Under vmap, redundancy is detected only if it does not depend on parameter values."""

    def frequency(l: Any) -> Any:  # noqa: E741
        params = {**REDUNDANT.params, "l": l}
        q = jnp.stack([0.0 * l, -l])
        found = linearize(REDUNDANT.system, q, REST, params, freedom=(1, 1, 1))
        return -found.space.A[1, 0], found.regular

    lengths = jnp.array([0.5, 2.0, 3.0])
    squares, regular = jax.vmap(frequency)(lengths)
    np.testing.assert_allclose(squares, 9.81 / lengths, rtol=1e-12)
    assert regular.all()


@pytest.mark.slow
def test_along_a_trajectory() -> None:
    """The linearization at each saved time is that of the state alone."""
    ts = jnp.linspace(0.0, 0.5, 4)
    run = jm.simulate(PENDULUM.system, PENDULUM.q, PENDULUM.v, ts, PENDULUM.params)

    def at(q: Any, v: Any, t: Any) -> Linearization:
        return linearize(PENDULUM.system, q, v, PENDULUM.params, t=t, steady=False)

    found = jax.vmap(at)(run.q, run.v, run.ts)
    assert found.regular.all()
    alone = at(run.q[2], run.v[2], ts[2])
    np.testing.assert_allclose(found.space.A[2], alone.space.A, rtol=1e-10, atol=1e-12)
    # phi'' = -(g / l) sin(phi); a tangent that stands still adds phi'^2 to (g / l) cos(phi)
    length, speed = PENDULUM.params["l"], np.linalg.norm(run.v, axis=1)
    square = -9.81 / length**2 * np.asarray(run.q)[:, 1] + (speed / length) ** 2
    np.testing.assert_allclose(np.linalg.det(found.space.A), square, rtol=1e-9)


@pytest.mark.slow
def test_a_steady_circle_of_a_skate() -> None:
    """On level ground it slides along its blade while it turns, and its frame turns with it."""
    params = {**SKATE.params, "g": 0.0}
    radius, rate = 1.5, 0.8
    turn = rate * np.array([[0, -1.0, 0], [1, 0, 0], [0, 0, 0]])
    state = [0.0, -radius, 0.0], [radius * rate, 0.0, rate]
    with pytest.raises(ValueError, match="pass the `W`"):
        linearize(SKATE.system, *state, params)
    circling = linearize(SKATE.system, *state, params, W=turn)
    assert (circling.positions, circling.velocities) == (3, 2)
    # carried along, a displaced circle turns about the first one, and all else stays
    values = np.sort_complex(np.linalg.eigvals(circling.space.A))
    expected = np.sort_complex(np.array([0, 0, 0, 1j * rate, -1j * rate]))
    np.testing.assert_allclose(values, expected, atol=1e-6)


@pytest.mark.slow
def test_a_singular_pose_is_refused() -> None:
    """A point on two touching circles cannot move, although to first order it can."""

    def cross(q: Any, t: Any, p: Any) -> Any:
        return q[0] * q[1]

    system = jm.System(lambda q, v, t, p: v @ v / 2, [jm.Holonomic(cross)], coordinates=("x", "y"))
    with pytest.raises(ValueError, match="singular pose"):
        linearize(system, [0.0, 0.0], REST)
    assert isinstance(linearize(system, [1.0, 0.0], REST), Linearization)


def test_parameters_as_inputs_are_differentiated_together() -> None:
    """x'' = (force + lift - k x) / m: more parameters hardly lengthen the program."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        energy = p["m"] * v @ v / 2 - p["k"] * q @ q / 2
        return energy + (p["lift"] + p["force"][1]) * q[0]

    system = jm.System(lagrangian, coordinates=["x"])
    params = {"m": 2.0, "k": 8.0, "lift": 6.0, "force": [0.0, 2.0]}

    def columns(q: Any, inputs: list[str]) -> Any:
        return linearize(system, q, [0.0], params, inputs=inputs).space.B

    few, many = ["k", "x"], ["k", "x", "force[1]", "m", "lift"]
    np.testing.assert_allclose(
        columns([1.0], many), [[0.0] * 5, [-0.5, 0.5, 0.5, 0.0, 0.5]], atol=1e-14
    )
    lengths = [
        sum(map(equations_of, jax.make_jaxpr(partial(columns, inputs=names))(jnp.ones(1)).eqns))
        for names in (few, many)
    ]
    assert lengths[1] < lengths[0] + 60
