"""Laws of force between points, bushings and torques: power and energy of random states."""

from typing import Any

import numpy as np
import pytest

from jaxmech import parts as jp
from tests.parts.forces.test_basic import PB, State, both, ends
from tests.parts.poses import hamilton


@both
def test_power_of_a_law(size: int) -> None:
    def law(length: Any, rate: Any, t: Any, p: Any) -> Any:
        return p["k"] * (length - 1.0) ** 3 - rate + t

    state = State(size, [jp.force_law("law", *ends(size), law)], {"k": 2.0})
    d, rate = state.way()
    length = np.linalg.norm(d)
    slide = d @ rate / length
    force = 2.0 * (length - 1.0) ** 3 - slide + 0.3
    np.testing.assert_allclose(state.power(), force * slide, rtol=1e-12)


@both
def test_energy_and_power_of_a_bushing(size: int) -> None:
    k, c = np.arange(2.0, 8.0)[: 3 * size - 3], np.arange(1.0, 7.0)[: 3 * size - 3]
    parts = [
        jp.bushing("rubber", *ends(size), stiffness=tuple(k)),
        jp.bushing_damper("oil", *ends(size), damping=tuple(c)),
    ]
    state = State(size, parts)
    d = state.R[0].T @ state.way()[0]
    if size == 2:
        turn = np.array([state.attitude[1] - state.attitude[0]])
    else:
        turn = 2 * hamilton(state.attitude[0] * [1, -1, -1, -1], state.attitude[1])[1:]
    energy = 0.5 * (k[:size] @ d**2 + k[size:] @ turn**2)
    np.testing.assert_allclose(state.energy(), energy, rtol=1e-12)

    end, velocity = state.point(1, PB)
    arm = end - state.r[0]
    w = state.w[0]
    sweep = w * np.array([-arm[1], arm[0]]) if size == 2 else np.cross(w, arm)
    rate = state.R[0].T @ (velocity - state.u[0] - sweep)
    spin = state.w[1] - state.w[0]
    spin = spin[None] if size == 2 else state.R[0].T @ spin
    power = -(c[:size] @ rate**2 + c[size:] @ spin**2)
    np.testing.assert_allclose(state.power(), power, rtol=1e-12)


@both
@pytest.mark.parametrize("follows", [False, True])
def test_power_of_a_force_with_a_torque(size: int, follows: bool) -> None:
    _, b = State(size, []).bodies
    force, torque = np.array([1.0, -2.0, 0.5])[:size], np.array([0.3, 0.7, -0.4])
    load = jp.applied_force(
        "push", b, PB[:size], tuple(force), follows=follows,
        torque=float(torque[0]) if size == 2 else tuple(torque),
    )  # fmt: skip
    state = State(size, [load])
    R = state.R[1] if follows else np.eye(size)
    turn = torque[0] * state.w[1] if size == 2 else (R @ torque) @ state.w[1]
    expected = (R @ force) @ state.point(1, PB)[1] + turn
    np.testing.assert_allclose(state.power(), expected, rtol=1e-12)
