"""Whether a state satisfies the constraints: relative to the mechanism, wherever it is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import Holonomic, Nonholonomic, System
from jaxmech.system import KnownState, extents_at, on_constraints
from tests.small import MIXED


def rod(q: Any, t: Any, p: Any) -> Any:
    return ((q[0] - p["x"]) ** 2 + q[1] ** 2 - p["l"] ** 2) / 2


ROD = System(lambda q, v, t, p: 0.5 * v @ v, [Holonomic(rod)], coordinates=("x", "y"))


def hangs(system: System, states: Any, dtype: Any) -> list[bool]:
    """Whether each of some pendulums (pivot, length, excess, excess speed) is consistent."""

    def one(pivot: Any, length: Any, excess: Any, speed: Any) -> Any:
        e = jnp.array([0.6, -0.8], dtype)
        q = jnp.array([1.0, 0.0], dtype) * pivot + (1 + excess) * length * e
        v = length * (jnp.array([0.8, 0.6], dtype) + speed * e)
        return on_constraints(system, q, v, jnp.zeros((), dtype), {"x": pivot, "l": length})

    columns = jnp.asarray(states, dtype).T
    return [bool(x) for x in jax.jit(jax.vmap(one))(*columns)]


def test_a_violation_is_relative_to_the_mechanism() -> None:
    sizes = (1.0, 1e-6, 1e3)
    good = [(x, size, 1e-9, 1e-9) for size in sizes for x in (0.0, 1e3 * size, 1e6 * size)]
    off = [(x, size, 1e-5, 0.0) for _, size, _, _ in good for x in (0.0, 1e6 * size)]
    fast = [(x, size, 0.0, 1e-5) for _, size, _, _ in good for x in (0.0, 1e6 * size)]
    answers = hangs(ROD, [*good, *off, *fast], float)
    assert answers == [True] * len(good) + [False] * (len(off) + len(fast))


def test_float32_allows_what_rounding_makes_and_no_more() -> None:
    met = [(0.0, 1.0, 1e-6, 1e-6), (100.0, 1.0, 0.0, 0.0), (1e6, 1.0, 0.05, 0.0), (0, 1e-6, 0, 0)]
    missed = [
        (0.0, 1.0, 2e-3, 0.0),
        (0.0, 1.0, 0.0, 1e-3),
        (100.0, 1.0, 0.01, 0),
        (0, 1e-6, 0.01, 0),
    ]
    answers = hangs(ROD, [*met, *missed], jnp.float32)
    assert answers == [True] * len(met) + [False] * len(missed)


def test_extents_are_lengths_and_angles_of_the_mechanism() -> None:
    """A planar body on a hinge, a crank of any length: one radian, and the lever."""

    def hinge(q: Any, t: Any, p: Any) -> Any:
        return q[:2] + p["r"] * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])]) - p["at"]

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * p["m"] * (v[:2] @ v[:2] + (p["r"] * v[2]) ** 2)

    names = ("x", "y", "angle")
    body = System(lagrangian, [Holonomic(hinge)], coordinates=names)
    find = jax.jit(lambda q, p: extents_at(body, q, jnp.zeros(3), jnp.zeros(()), p))
    for r, m, at in ((1.0, 1.0, 0.0), (1e-6, 1e3, 0.0), (1e3, 1e-6, 1e6)):
        ratio = find(jnp.array([at, at, 0.4]), {"r": r, "m": m, "at": at}) / np.array([r, r, 1.0])
        assert np.all((ratio > 0.25) & (ratio < 4.0))


def test_linear_constraints_are_judged_in_units() -> None:
    """Gears after 1e5 turns, and a mechanism without any constraint on positions."""
    mesh = Holonomic(lambda q, t, p: q[0] + 2 * q[1], "mesh")
    gears = System(lambda q, v, t, p: v @ v, [mesh], coordinates=("a", "b"))
    free = System(lambda q, v, t, p: v @ v, coordinates=("a", "b"))
    still, t = jnp.zeros(2), jnp.zeros(())
    for a in (0.0, 6e5):
        answers = [
            bool(on_constraints(gears, jnp.array([a, off - a / 2]), still, t, {}))
            for off in (1e-8, 1e-4)
        ]
        assert answers == [True, False]
    np.testing.assert_array_equal(extents_at(free, still, still, t, {}), 1.0)
    assert on_constraints(free, still, still, t, {})


def test_a_knife_edge_is_judged_by_its_turn() -> None:
    edge = Nonholonomic(lambda q, v, t, p: v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2]))
    sleigh = System(
        lambda q, v, t, p: 0.5 * (v[:2] @ v[:2] + (1e-6 * v[2]) ** 2),
        [edge], coordinates=("x", "y", "turn"),
    )  # fmt: skip
    q, t = jnp.array([5.0, 5.0, 0.3]), jnp.zeros(())
    along = 1e-6 * jnp.array([jnp.cos(0.3), jnp.sin(0.3), 0.0])
    across = 1e-8 * jnp.array([-jnp.sin(0.3), jnp.cos(0.3), 0.0])
    answers = [bool(on_constraints(sleigh, q, v, t, {})) for v in (along, along + across)]
    assert answers == [True, False]


@pytest.mark.parametrize(("size", "pivot"), [(1e-6, 0.0), (1.0, 1e6)])
def test_simulate_and_assemble_agree_on_what_is_consistent(size: float, pivot: float) -> None:
    params = {"x": pivot, "l": size}
    off = jnp.array([pivot + 1.3 * size, 0.0])
    how = {"steps": jm.FixedSteps(per_save=4), "throw": False}
    ts = jnp.linspace(0.0, 0.1, 3)
    sol = jm.simulate(ROD, off, jnp.zeros(2), ts, params, **how)
    assert jm.Status(int(sol.status)) is jm.Status.INCONSISTENT
    q, v = jm.assemble(ROD, off, jnp.zeros(2), 0.0, params)
    np.testing.assert_allclose(q - jnp.array([pivot, 0.0]), [size, 0.0], atol=1e-9 * pivot * 1e-6)
    assert jm.simulate(ROD, q, v, ts, params, **how).ok


def test_violations_name_constraint_level_and_size() -> None:
    state = (
        MIXED.system,
        jnp.asarray(MIXED.q),
        jnp.asarray(MIXED.v),
        jnp.asarray(0.0),
        MIXED.params,
    )
    assert KnownState(*state).violations() == []
    off = jnp.array([0.0, 0.0, 0.1, 0.0, 5.0]), jnp.array([1.0, 0.2, 0.0, 0.0, 0.0])
    found = KnownState(state[0], *off, *state[3:]).violations()
    assert [(one.name, one.level) for one in found] == [
        ("road", "position"),
        ("blade and speed", "velocity"),
    ]
    assert found[0].size == pytest.approx(0.1)
    assert found[1].size == pytest.approx(0.2)
