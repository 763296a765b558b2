"""Closed loops of joints in space move alike in all orientations."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from tests.parts import loops

QUICK = (loops.shafts,)
PLACED = (*QUICK, loops.four_bar_on_table, loops.slider_crank, loops.sarrus, loops.bennett)


@pytest.mark.parametrize(
    "make",
    [make if make in QUICK else pytest.param(make, marks=pytest.mark.slow) for make in PLACED],
    ids=lambda make: make.__name__,
)
def test_a_turned_loop_has_the_same_rates_and_accelerations(make: Any) -> None:
    """Coordinates of joints do not depend on the axes of space, but for where they are zero."""
    states = [loops.posed(make, seed)[1:] for seed in (None, 3)]
    rates, accelerations, ranks = [], [], []
    for mechanism, q, v in states:
        sol = jm.acceleration(mechanism.system, q, v)
        hinges = [not name.startswith("base.") for name in mechanism.system.coordinates]
        rates.append(np.asarray(v)[hinges])
        accelerations.append(np.asarray(sol.qdd)[hinges])
        ranks.append(int(sol.rank))
    np.testing.assert_allclose(rates[1], rates[0], atol=1e-10)
    np.testing.assert_allclose(accelerations[1], accelerations[0], atol=1e-9)
    assert ranks[1] == ranks[0]


def test_implied_equations_are_zeros() -> None:
    """They leave no operation in a program: their rows are constants, as for axes of space."""
    _, mechanism, q, v = loops.posed(loops.four_bar_on_table, 3)
    A = np.asarray(mechanism.system.dynamics.rows(q, v, jnp.zeros(()), {}))
    lengths = np.abs(A).max(axis=1)
    assert (lengths[:3] > 0.1).all()
    assert (lengths[3:] == 0).all()
    level = mechanism.system.dynamics.position_level(q, jnp.zeros(()), {})
    assert (level[3:] == 0).all()


def test_a_loop_that_cannot_be_closed() -> None:
    """The height of a table that the loop cannot reach is no round-off."""
    pose = loops.Pose(3)
    loops.four_bar(pose)
    place = 0.3 * loops.Y
    table = jp.planar(
        "table", jp.ground, pose.point("ground", place + 1e-4 * loops.Z), pose.bodies["coupler"],
        pose.point("coupler", place), normal=pose.along("ground", loops.Z),
        normal_b=pose.along("coupler", loops.Z),
    )  # fmt: skip
    pose.joints.append(table)
    pose.cut.append("table")
    with pytest.raises(ValueError, match=r"'table' cannot be met.*residual at 0\.0001"):
        pose.start(pose.mechanism())


@pytest.mark.slow
def test_single_precision() -> None:
    _, mechanism, q, v = loops.posed(loops.four_bar, 3)
    q, v, ts = (x.astype(jnp.float32) for x in (q, v, jnp.linspace(0.0, 0.2, 3)))
    sol = jm.simulate(mechanism.system, q, v, ts, steps=jm.FixedSteps(20))
    assert sol.q.dtype == jnp.float32
    assert int(sol.rank) == 2
    assert jnp.abs(sol.position_residual).max() < 1e-6
