"""Machines with many gaps against closed forms, and the energy of random ones."""

from typing import Any

import hypothesis
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies

import jaxmech as jm
from tests.unilateral.systems import G

LINK, LIFT = 0.25, 0.5


def _heights(q: Any, t: Any, p: Any) -> Any:
    return q


def _strings(q: Any, t: Any, p: Any) -> Any:
    above = jnp.concatenate([LIFT * t[None], q[:-1]])
    return LINK - (above - q)


def _weights(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - G * q.sum()


@pytest.mark.slow
def test_a_chain_lifts_off_a_table_link_by_link() -> None:
    """A hand lifts the end of a chain at a constant speed; every mass is jerked to that speed."""
    table = jm.Unilateral(_heights, name="table")
    strings = jm.Unilateral(_strings, name="strings")
    chain = jm.System(_weights, [table, strings], coordinates=("a", "b", "c"))
    ts = jnp.linspace(0.0, 1.9, 20)
    sol = jm.simulate(chain, jnp.zeros(3), jnp.zeros(3), ts, steps=jm.FixedSteps(10))
    lifts = LINK / LIFT * np.arange(1, 4)
    for k in range(3):
        jerk = sol.events[f"strings[{k}] closes"]
        np.testing.assert_allclose(jerk.t[: jerk.count], [lifts[k]], rtol=1e-12)
        np.testing.assert_allclose(jerk.v_after[0], LIFT * (np.arange(3) <= k), atol=1e-12)
    off = np.asarray(ts)[:, None] - lifts[None]
    np.testing.assert_allclose(sol.q, LIFT * np.maximum(off, 0.0), atol=1e-12)
    seen = jm.observe(chain, sol).multipliers
    np.testing.assert_allclose(seen["table"], np.where(off < 0, G, 0.0), atol=1e-9)
    # A string bears all that has left the table below it.
    above = np.where(off > 0, G, 0.0)
    np.testing.assert_allclose(seen["strings"], np.cumsum(above[:, ::-1], 1)[:, ::-1], atol=1e-9)


def _arm(q: Any, v: Any, t: Any, p: Any) -> Any:
    a, b = q[0], q[0] + q[1]
    l1, l2 = p["lengths"]
    m1, m2 = p["masses"]
    da, db = v[0], v[0] + v[1]
    bend = l1 * l2 * da * db * jnp.cos(q[1])
    kinetic = 0.5 * (m1 + m2) * (l1 * da) ** 2 + m2 * (0.5 * (l2 * db) ** 2 + bend)
    return kinetic + G * ((m1 + m2) * l1 * jnp.cos(a) + m2 * l2 * jnp.cos(b))


def _stops(q: Any, t: Any, p: Any) -> Any:
    fist = p["lengths"] @ jnp.stack([jnp.sin(q[0]), jnp.sin(q[0] + q[1])])
    return jnp.stack([q[1] + p["range"][0], p["range"][1] - q[1], 0.4 + fist])


def _restitutions(p: Any) -> Any:
    return p["e"]


ARM = jm.System(
    _arm, [jm.Unilateral(_stops, restitution=_restitutions, name="stops")],
    coordinates=("hip", "knee"),
)  # fmt: skip


def _numbers(low: float, high: float, count: int) -> Any:
    return strategies.lists(strategies.floats(low, high), min_size=count, max_size=count)


@pytest.mark.slow
@hypothesis.settings(max_examples=25, deadline=None, derandomize=True, database=None)
@hypothesis.given(
    masses=_numbers(0.2, 3.0, 2),
    lengths=_numbers(0.4, 1.5, 2),
    limits=_numbers(0.1, 1.5, 2),
    e=_numbers(0.0, 1.0, 3),
    speeds=_numbers(-3.0, 3.0, 2),
)
def test_no_impact_gains_energy(
    masses: Any, lengths: Any, limits: Any, e: Any, speeds: Any
) -> None:
    """Two links between a lower and an upper stop, whose fist may hit a wall."""
    numbers = {"masses": masses, "lengths": lengths, "range": limits, "e": e}
    p = {name: jnp.asarray(value, float) for name, value in numbers.items()}
    ts = jnp.linspace(0.0, 1.5, 31)
    sol = jm.simulate(
        ARM, jnp.array([0.9, 0.0]), jnp.asarray(speeds, float), ts, p, steps=jm.FixedSteps(20),
        throw=False,
    )  # fmt: skip
    assert sol.status == jm.Status.OK
    size = float(jnp.abs(sol.energy).max() + masses[1] * G)
    assert float(jnp.diff(sol.energy).max()) < 1e-6 * size
    assert float(jnp.abs(sol.q).max()) < 1e3
    gaps = np.array([_stops(q, 0.0, p) for q in sol.q])
    assert gaps.min() > -1e-9
