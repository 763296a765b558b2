"""A ratchet: a gap whose end moves on with each tooth, by an event."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

INERTIA, PITCH, SHARE = 0.02, 2 * np.pi / 12, 0.3


def _energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * (INERTIA * v[0] ** 2 + v[1] ** 2)


def _to_and_fro(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([p["torque"] * jnp.cos(2 * jnp.pi * t), jnp.zeros_like(t)])


def _pawl_is_fixed(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[1]


def _back_to_tooth(q: Any, t: Any, p: Any) -> Any:
    return q[0] - q[1]


def _to_next_tooth(q: Any, v: Any, t: Any, p: Any) -> Any:
    return q[0] - q[1] - PITCH


def _falls(q: Any, v: Any, t: Any, p: Any) -> Any:
    return q.at[1].add(PITCH), v


RATCHET = jm.System(
    _energy,
    [jm.Nonholonomic(_pawl_is_fixed, name="mount"), jm.Unilateral(_back_to_tooth, name="pawl")],
    force=_to_and_fro,
    coordinates=("wheel", "tooth"),
)
FALLS = jm.Event(_to_next_tooth, 1, transition=jm.Transition(_falls), name="falls", keep=64)


def _turned(torque: Any, angle: Any, speed: Any) -> Any:
    start, ts = (jnp.stack([angle, 0 * angle]), jnp.stack([speed, 0 * angle])), jnp.arange(31) / 10
    sol = jm.simulate(RATCHET, *start, ts, {"torque": torque}, events=FALLS, steps=jm.FixedSteps(8))
    return sol.q[-1, 0], sol


@pytest.mark.slow
def test_a_wheel_turns_back_to_its_last_tooth_only() -> None:
    run = jax.value_and_grad(_turned, has_aux=True)
    (angle, sol), slope = run(jnp.asarray(1.0), jnp.asarray(SHARE), jnp.asarray(0.0))
    # Free up to 0.3 + 2 T / (4 pi^2 J) = 2.833, it falls back to the fifth tooth, which holds it
    # while the torque is negative; from then on its speed (1 + sin(2 pi t)) T / (2 pi J) is not.
    assert int(np.floor((SHARE + 2 / (4 * np.pi**2 * INERTIA)) / PITCH)) == 5
    np.testing.assert_allclose(sol.events["pawl opens"].t[0], 0.75, rtol=1e-12)
    gain = (2.25 - 1 / (2 * np.pi)) / (2 * np.pi * INERTIA)
    np.testing.assert_allclose([angle, slope], [5 * PITCH + gain, gain], rtol=1e-6)
    assert sol.events["falls"].count == int(angle / PITCH)
    held = jm.observe(RATCHET, sol, {"torque": 1.0}).multipliers["pawl"][6:8, 0]
    np.testing.assert_allclose(held, -np.cos(2 * np.pi * sol.ts[6:8]), rtol=1e-12)
    # A start against the pawl is a blow.
    (angle, sol), _ = run(jnp.asarray(0.0), jnp.asarray(0.0), jnp.asarray(-1.0))
    np.testing.assert_allclose(angle, 0.0, atol=1e-15)
    assert sol.events["pawl closes"].count == 1
