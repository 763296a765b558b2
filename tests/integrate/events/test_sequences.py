"""Random sequences of events at given times, in steps of every kind, against exact pieces."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.status import Status

PUSH, KICK, END = -0.8, 0.3, 1.5
KINDS = ("kick", "kick", "lock", "lock", "unlock", "unlock", "stop", "look")

CART = jm.System(
    lambda q, v, t, p: 0.5 * v[0] ** 2,
    [jm.Nonholonomic(lambda q, v, t, p: v[0], "lock")],
    force=lambda q, v, t, p: jnp.array([PUSH]),
    coordinates=("x",),
)
TRANSITIONS = {
    "kick": jm.Transition(lambda q, v, t, p: (q, v + KICK)),
    "lock": jm.Transition(on="lock"),
    "unlock": jm.Transition(off="lock"),
}


def reached(k: int) -> Any:
    return lambda q, v, t, p: t - p[k]


EVENTS = tuple(
    jm.Event(
        reached(k), 1, terminal=kind == "stop", transition=TRANSITIONS.get(kind), name=f"{kind} {k}"
    )
    for k, kind in enumerate(KINDS)
)


def exact(times: np.ndarray, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """x at the given times, its velocity there, and how often each event occurs."""
    t, x, v, locked = 0.0, 0.2, 0.0, False
    saves: list[tuple[float, float]] = []
    counts = [0] * len(KINDS)

    def moved(until: float) -> tuple[float, float]:
        dt, a = until - t, 0.0 if locked else PUSH
        return x + v * dt + a * dt * dt / 2, v + a * dt

    stopped = False
    for k in [*np.argsort(times), -1]:
        until = END if k < 0 else times[k]
        while len(saves) < len(ts) and (ts[len(saves)] < until or k < 0):
            saves.append((x, v) if stopped else moved(ts[len(saves)]))
        if k < 0 or until > END or stopped:
            continue
        (x, v), t = moved(until), until
        kind = KINDS[k]
        counts[k] = int(kind not in ("lock", "unlock") or locked == (kind == "unlock"))
        locked = kind == "lock" or (locked and kind != "unlock")
        v = 0.0 if locked else v + KICK * (kind == "kick")
        stopped = kind == "stop"
    rows = np.array(saves)
    return rows[:, 0], rows[:, 1], counts


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"steps": jm.FixedSteps(1)}, marks=pytest.mark.slow),
        {"steps": jm.FixedSteps(5)},
        pytest.param({"steps": jm.Adaptive()}, marks=pytest.mark.slow),
        pytest.param({"steps": jm.Adaptive(), "method": jm.Rodas5P()}, marks=pytest.mark.slow),
    ],
    ids=["default", "one step", "fixed", "adaptive", "Rodas5P"],
)
def test_sequences_of_transitions(policies: dict[str, Any]) -> None:
    """None is lost, however far a step reaches: a cart that a lock holds moves trivially."""
    ts = np.array([0.0, 0.7, END])
    # Some of the events come after the end, and so do most of the terminal ones.
    times = np.random.default_rng(7).uniform(0.02, 2.0, (300, len(KINDS)))
    times[:, KINDS.index("stop")] *= 2

    def run(times: Array) -> jm.Solution:
        return jm.simulate(
            CART, [0.2], [0.0], ts, times, events=EVENTS, inactive="lock", **policies
        )

    sol = jax.vmap(run)(times)
    for k, member in enumerate(times):
        x, v, counts = exact(member, ts)
        found = [int(sol.events[event.name].count[k]) for event in EVENTS]
        assert found == counts, (k, member)
        np.testing.assert_allclose(sol.q[k, :, 0], x, atol=1e-12)
        np.testing.assert_allclose(sol.v[k, :, 0], v, atol=1e-12)
    assert not any(sol.events[event.name].missed.any() for event in EVENTS)
    assert set(np.unique(sol.status)) == {Status.OK, Status.STOPPED}
