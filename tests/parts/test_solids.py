"""Mass properties of solids, and the momentum and energies of mechanisms."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp


def moments(solid: dict[str, Any], params: Any) -> Any:
    inertia = solid["inertia"]
    return inertia(jnp.zeros(()), params) if callable(inertia) else inertia


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (lambda m, *sizes: jp.solid_box(m, sizes), (0.3, 0.5, 0.7)),
        (lambda m, *sizes: jp.solid_box(m, sizes), (0.3, 0.5)),
        (jp.solid_cylinder, (0.3, 0.5)),
        (jp.solid_sphere, (0.3,)),
        (jp.slender_rod, (0.3,)),
    ],
)
def test_names_of_parameters_give_the_moments_of_numbers(make: Any, sizes: Any) -> None:
    names = [f"s{k}" for k in range(len(sizes))]
    params = {"m": 2.0, **dict(zip(names, sizes, strict=True))}
    expected = moments(make(2.0, *sizes), {})
    np.testing.assert_allclose(moments(make("m", *names), params), expected, rtol=1e-14)
    mixed = make(2.0, *names[:-1], lambda t, p: p[names[-1]] + t)
    np.testing.assert_allclose(moments(mixed, params), expected, rtol=1e-14)


def test_moments_of_thin_slices_add_up() -> None:
    """A cylinder is a stack of thin ones: m (z^2 + r^2 / 4 + h^2 / 12) across, for each slice."""
    slices = 50
    height = 0.8 / slices
    z = (np.arange(slices) + 0.5) * height - 0.4
    one = jp.solid_cylinder(3.0 / slices, 0.2, height)["inertia"]
    across = (one[0] + 3.0 / slices * z**2).sum()
    expected = jp.solid_cylinder(3.0, 0.2, 0.8)["inertia"]
    np.testing.assert_allclose([across, slices * one[2]], expected[1:], rtol=1e-12)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_free_pair_keeps_its_momentum(size: int) -> None:
    """Momentum and angular momentum of a motion without outer forces."""
    o = (0.1, -0.2, 0.3)[:size]
    if size == 2:
        a, b = (jp.planar_body(n, **jp.solid_box(2.0, (0.3, 0.5)), center=o) for n in "ab")
        hinge = jp.revolute("hinge", a, o, b, o[::-1])
        spin: Any = 1.0
    else:
        a, b = (jp.spatial_body(n, **jp.solid_box(2.0, (0.3, 0.5, 0.7)), center=o) for n in "ab")
        hinge = jp.revolute("hinge", a, o, b, o[::-1], axis=(0, 1, 0))
        spin = (1.0, 0.5, -0.3)
    spring = jp.joint_spring("spring", "hinge.angle", stiffness=3.0)
    rotor = jp.rotor("rotor", hinge, 0.01)
    mechanism = jp.Mechanism([a, b], [hinge], [spring, rotor])
    starts = {
        "a": jp.Start(o, velocity=o, spin=spin),
        "hinge": jp.Start(0.7, velocity=-0.5),
    }
    q, v = mechanism.guess(starts)
    sol = jm.simulate(mechanism.system, q, v, jnp.linspace(0, 1, 3), {}, steps=jm.FixedSteps(200))
    for k in (0, 2):
        p, h = mechanism.momentum(sol.q[k], sol.v[k])
        if k == 0:
            first = p, h
    np.testing.assert_allclose(p, first[0], atol=1e-9)
    np.testing.assert_allclose(h, first[1], atol=1e-9)
