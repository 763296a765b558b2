"""Bodies in space on several feet, whose normal forces may be redundant, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.integrate.events.coulomb import contact
from tests.unilateral.systems import G

WIDE, DEEP = 0.3, 0.2
FOUR = ((WIDE, DEEP), (WIDE, -DEEP), (-WIDE, DEEP), (-WIDE, -DEEP))
ALONG = np.array([0.6, 0.8])


@pytest.mark.parametrize(("height", "closed"), [(0.25, 4), (0.62, 3)])
def test_pushes_of_sliding_feet_have_minimum_norm_or_one_foot_has_none(
    height: float, closed: int
) -> None:
    """A box of 1 kg slides along (0.6, 0.8), and the moment of friction leans it forward."""
    feet = np.hstack([FOUR, np.full((4, 1), -height)])
    e = np.eye(3)
    rows = [np.r_[n, np.cross(foot, n)] for n in e[2:] for foot in feet]
    rows += [np.r_[n, np.cross(foot, n)] for foot in feet for n in e[:2]]
    J, M = np.stack(rows), np.diag([1.0, 1.0, 1.0, 0.05, 0.07, 0.08])
    W, r = J @ np.linalg.solve(M, J.T), J @ np.array([0.0, 0.0, -G, 0.0, 0.0, 0.0])
    limits, on, pressed = np.full((2, 8), 0.3), np.ones(8, bool), np.repeat(np.eye(4), 2, axis=0)
    found = jax.jit(contact, static_argnums=10)(
        W, r, np.abs(r), on[:4], pressed, limits, np.zeros(8), on, np.tile(ALONG, 4), False,
        (0, 2, 4, 6),
    )  # fmt: skip
    pushes = np.asarray(found.forces[:4])
    assert found.solved
    assert not found.sticks.any()
    assert found.pushes.sum() == closed
    assert (pushes >= 0).all()
    np.testing.assert_allclose(pushes.sum(), G)
    lean = 0.3 * G * height * ALONG  # by which pushes are farther ahead
    np.testing.assert_allclose(pushes @ feet[:, :2], lean, atol=1e-9)
    np.testing.assert_allclose(found.forces[4:].reshape(4, 2), -0.3 * np.outer(pushes, ALONG))
    if closed == 4:
        by_feet = np.hstack([np.ones((4, 1)), feet[:, :2]]).T
        np.testing.assert_allclose(pushes, np.linalg.pinv(by_feet) @ np.r_[G, lean], rtol=1e-9)


RAIL = jm.System(
    lambda q, v, t, p: 0.5 * v @ v - G * q[2],
    [
        jm.Unilateral(
            lambda q, t, p: q[2], friction=0.2, slip=lambda q, v, t, p: v[:2], name="floor"
        ),
        jm.DryFriction(lambda q, v, t, p: v[0], 1.0, name="rail"),
    ],
    force=lambda q, v, t, p: jnp.stack([t, 0 * t, 0 * t]), coordinates=("x", "y", "z"),
)  # fmt: skip


@pytest.mark.slow
def test_friction_of_a_floor_and_of_a_rail_are_overcome_together() -> None:
    still, ts = jnp.zeros(3), jnp.linspace(0.0, 4.0, 5)
    sol = jm.simulate(RAIL, still, still, ts, steps=jm.FixedSteps(20))
    begin = 1 + 0.2 * G
    for name in ("floor friction slips", "rail slips"):
        np.testing.assert_allclose(sol.events[name].t[0], begin, rtol=1e-9)
        assert sol.events[name].count == 1
    np.testing.assert_allclose(sol.q[-1], [(4 - begin) ** 3 / 6, 0, 0], atol=1e-8)


def test_several_slips_in_space_must_not_be_pressed_by_gaps() -> None:
    floor = jm.Unilateral(
        lambda q, t, p: jnp.stack([q[2], q[2]]), friction=0.3,
        slip=lambda q, v, t, p: jnp.stack([v[:2], v[:2]]), name="feet",
    )  # fmt: skip
    box = jm.System(lambda q, v, t, p: 0.5 * v @ v - G * q[2], [floor], coordinates=tuple("xyz"))
    with pytest.raises(ValueError, match="feet friction"):
        jm.simulate(
            box, jnp.zeros(3), jnp.zeros(3), jnp.linspace(0.0, 1.0, 3), steps=jm.FixedSteps(3)
        )
