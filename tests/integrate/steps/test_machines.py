"""Machines that are driven, in which events switch constraints on and off."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import (
    Adaptive,
    Event,
    Holonomic,
    Nonholonomic,
    System,
    Transition,
    simulate,
)

ROOT = np.sqrt(2.0)


def pin_in_slot(q: Any, t: Any, p: Any) -> Any:
    """The pin of the crank, at a radius of 1, is in a slot of a wheel with its axle ROOT away."""
    x, y = jnp.cos(q[0]) - ROOT, jnp.sin(q[0])
    c, s = jnp.cos(q[1]), jnp.sin(q[1])
    return (c * x + s * y) * (c * y - s * x)  # on one of two lines across the wheel


GENEVA = System(
    lambda q, v, t, p: 0.5 * (v[0] ** 2 + 0.3 * v[1] ** 2),
    [
        Holonomic(lambda q, t, p: q[0] - jnp.pi - p["speed"] * t, name="motor"),
        Holonomic(pin_in_slot, name="pin"),
        Nonholonomic(lambda q, v, t, p: v[1], name="lock"),
    ],
    coordinates=("crank", "wheel"),
)
ENTRY = Event(
    lambda q, v, t, p: jnp.sin(q[0] + jnp.pi / 4), name="entry", direction=1, keep=8,
    transition=Transition(on="pin", off="lock"),
)  # fmt: skip
EXIT = Event(
    lambda q, v, t, p: jnp.sin(q[0] - jnp.pi / 4), name="exit", direction=1, keep=8,
    transition=Transition(on="lock", off="pin"),
)  # fmt: skip


@pytest.mark.slow
def test_a_geneva_wheel() -> None:
    ts = np.linspace(0.0, 10.0, 11)
    start, p = (np.array([np.pi, np.pi / 4]), np.array([np.pi, 0.0])), {"speed": np.pi}
    way = {"steps": Adaptive(), "events": (ENTRY, EXIT), "inactive": "pin"}
    sol = simulate(GENEVA, *start, ts, p, **way)
    # Every two seconds the pin takes the wheel along, by a quarter of a turn.
    for name, first in (("entry", 0.75), ("exit", 1.25)):
        assert sol.events[name].count == 5
        np.testing.assert_allclose(sol.events[name].t[:5], first + 2 * np.arange(5), atol=1e-7)
    assert abs(sol.q[-1, 1] + 2.25 * np.pi) < 1e-6
    middle = np.pi / (ROOT - 1) * np.array([0.0, -1.0])  # at rest, and where the pin is nearest
    np.testing.assert_allclose(sol.v[:, 1], middle[np.arange(11) % 2], atol=1e-6)
