"""Laws of force between points, bushings and wrenches: power and energy of random states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
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
def test_power_of_a_wrench(size: int, follows: bool) -> None:
    _, b = State(size, []).bodies
    force, torque = np.array([1.0, -2.0, 0.5])[:size], np.array([0.3, 0.7, -0.4])
    load = jp.wrench(
        "push", b, PB[:size], force=tuple(force), follows=follows,
        torque=float(torque[0]) if size == 2 else tuple(torque),
    )  # fmt: skip
    state = State(size, [load])
    R = state.R[1] if follows else np.eye(size)
    turn = torque[0] * state.w[1] if size == 2 else (R @ torque) @ state.w[1]
    expected = (R @ force) @ state.point(1, PB)[1] + turn
    np.testing.assert_allclose(state.power(), expected, rtol=1e-12)


def test_a_table() -> None:
    law = jp.tabulated([-1.0, 0.0, 2.0], [1.0, 0.0, -4.0])
    x = jnp.linspace(-2.0, 3.0, 11)
    found = jax.vmap(lambda x: law(x, 0.0, 0.0, {}))(x)
    np.testing.assert_allclose(found, np.where(x < 0, -x, -2 * x))
    slopes = jax.vmap(jax.grad(lambda x: law(x, 0.0, 0.0, {})))(x + 0.01)
    np.testing.assert_allclose(slopes, np.where(x + 0.01 < 0, -1.0, -2.0))
    damper = jp.tabulated([0.0, 1.0], [0.0, -3.0], of="rate")
    assert damper(5.0, jnp.float32(0.5), 0.0, {}) == -1.5
    assert damper(5.0, jnp.float32(0.5), 0.0, {}).dtype == jnp.float32
    for x, y in (([0.0, 0.0], [1.0, 2.0]), ([0.0, 1.0], [1.0]), ([0.0, 1.0], [1.0, np.nan])):
        with pytest.raises(ValueError, match="with `x` increasing"):
            jp.tabulated(x, y)
    with pytest.raises(ValueError, match='"position" or "rate", but is \'speed\''):
        jp.tabulated([0.0, 1.0], [0.0, 1.0], of="speed")


def test_a_tabulated_spring_is_native_code() -> None:
    """An oscillator with a table of a linear spring, in a batch: x = cos(2 t)."""
    bob = jp.point_mass("bob", mass=1.0)
    rail = jp.point_on_line("rail", jp.ground, (0, 0), bob, (0, 0), axis=(1, 0))
    spring = jp.force_law(
        "spring", jp.ground, (-3, 0), bob, (0, 0), jp.tabulated([2.0, 3.0, 4.0], [4.0, 0.0, -4.0])
    )
    mechanism = jp.Mechanism([bob], [rail], [spring])
    ts = jnp.linspace(0.0, 1.0, 3)

    def run(x: Any) -> Any:
        start = jnp.stack([x, 0.0])
        return jm.simulate(mechanism.system, start, 0 * start, ts, {}, steps=jm.FixedSteps(100)).q[
            :, 0
        ]

    starts = jnp.linspace(0.1, 0.9, 3)
    assert "plain vmap" not in repr(jm.compiler.explain(run, starts))
    expected = np.outer(starts, np.cos(2 * ts))
    np.testing.assert_allclose(jax.vmap(run)(starts), expected, rtol=1e-7)
