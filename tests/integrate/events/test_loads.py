"""Events of reactions while the motion is trivial: slips, lifts, and functions of a user."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.errors import StepWarning

W = 2 * np.pi
TS = np.array([0.0, 1.0, 2.45, 3.0])
LOADS = np.array([4.01, 4.1, 4.5, 6.0])  # amplitudes, against a limit of 4 N
FIRST = np.arcsin(4 / LOADS) / W  # where the load reaches the limit


def push(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([p["A"] * jnp.sin(W * t)])


def kinetic(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v


ROUGH = jm.System(
    kinetic,
    [jm.DryFriction(lambda q, v, t, p: v[0], static=4.0, name="floor")],
    force=push,
    coordinates=("x",),
)
LYING = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - 4.0 * q[0],
    [jm.Unilateral(lambda q, t, p: q[0], name="floor")],
    force=push,
    coordinates=("x",),
)
HELD = jm.System(
    kinetic, [jm.Nonholonomic(lambda q, v, t, p: v[0], "lock")], force=push, coordinates=("x",)
)


def of_loads(system: jm.System, steps: Any, **policies: Any) -> jm.Solution:
    def run(amplitude: Any) -> jm.Solution:
        return jm.simulate(system, [0.0], [0.0], TS, {"A": amplitude}, steps=steps, **policies)

    return jax.vmap(run)(LOADS)


@pytest.mark.parametrize("rtol", [1e-3, pytest.param(1e-9, marks=pytest.mark.slow)])
def test_no_slip_is_stepped_over(rtol: float) -> None:
    """While the block sticks steps have no error; loads just above the limit are short pulses."""
    record = of_loads(ROUGH, jm.Adaptive(rtol=rtol, atol=rtol)).events["floor slips"]
    assert (record.count == 6).all()
    np.testing.assert_allclose(record.t[:, 0], FIRST, atol=1e-9)
    assert not record.missed.any()


def test_no_lift_is_stepped_over() -> None:
    record = of_loads(LYING, jm.Adaptive()).events["floor opens"]
    assert (record.count == 3).all()
    np.testing.assert_allclose(record.t[:, 0], FIRST, atol=1e-9)


LIMIT = jm.Event(
    lambda q, v, t, p, reactions: 4.0 - jnp.abs(reactions.multipliers["lock"][0]),
    name="limit",
    keep=16,
)


@pytest.mark.parametrize(
    "steps", [None, pytest.param(jm.Adaptive(), marks=pytest.mark.slow)], ids=repr
)
def test_reactions_of_a_body_that_a_lock_holds(steps: Any) -> None:
    record = of_loads(HELD, steps, events=LIMIT).events["limit"]
    assert (record.count == 12).all()
    half = np.arange(6) / 2
    exact = np.sort([*(FIRST[0] + half), *(0.5 - FIRST[0] + half)])
    np.testing.assert_allclose(record.t[0, :12], exact, atol=1e-9)


@pytest.mark.slow
def test_long_given_steps_report_what_they_miss() -> None:
    with pytest.warns(StepWarning, match="'limit' was missed"):
        record = of_loads(HELD, jm.FixedSteps(2), events=LIMIT).events["limit"]
    np.testing.assert_array_equal((record.count + record.missed)[1:], 12)  # no shorter pulse
    with pytest.warns(StepWarning, match="'floor slips' was missed"):
        record = of_loads(ROUGH, jm.FixedSteps(2)).events["floor slips"]
    assert record.missed.any()


def test_steps_are_chosen_for_a_load_beside_friction_and_an_input() -> None:
    """A block slides beside one that is locked, and on which a recorded force acts."""
    system = jm.System(
        kinetic,
        [
            jm.DryFriction(lambda q, v, t, p: v[0], static=0.5, name="floor"),
            jm.Nonholonomic(lambda q, v, t, p: v[1], "lock"),
        ],
        force=lambda q, v, t, p: jnp.stack([1.0, p["pull"](t)]),
        coordinates=("x", "y"),
    )
    event = jm.Event(
        lambda q, v, t, p, reactions: 1.0 - jnp.abs(reactions.multipliers["lock"][0]),
        direction=-1,
        name="limit",
    )
    pull = jm.Signal([0.0, 1.0, 3.0], [0.0, 1.5, -3.0])
    sol = jm.simulate(system, np.zeros(2), np.zeros(2), TS, {"pull": pull}, events=event)
    np.testing.assert_allclose(sol.events["limit"].t[:2], [2 / 3, 1 + 2.5 / 2.25], atol=1e-9)
    np.testing.assert_allclose(sol["x"], TS**2 / 4, atol=1e-9)
