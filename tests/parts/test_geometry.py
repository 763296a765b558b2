"""The geometry of a mechanism made from its parts."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech import parts as jp
from tests.parts.mechanisms import parallel_four_bar

O = (0, 0)  # noqa: E741


def drawn(mechanism: jp.Mechanism, q: np.ndarray) -> dict[str, np.ndarray]:
    found = jax.jit(lambda q: mechanism.geometry(q, 0.0, dict(mechanism.params)))(q)
    return {name: np.asarray(points) for name, points in found.items()}


def test_bodies_go_through_their_joints() -> None:
    mechanism, starts = parallel_four_bar(angle=1.1)
    q, _ = mechanism.guess(starts)
    x = drawn(mechanism, q)
    top = np.array([np.cos(1.1), np.sin(1.1)])
    np.testing.assert_allclose(x["B0"], top, atol=1e-14)
    np.testing.assert_allclose(x["A1"], [1, 0], atol=1e-14)
    for body, ends in (("left", ("A0", "B0")), ("coupler", ("B0", "B1")), ("right", ("A1", "B1"))):
        reach = x[body]
        for end in ends:
            assert np.linalg.norm(reach - x[end], axis=1).min() < 1e-14
        np.testing.assert_allclose(x[f"{body}.center"], (x[ends[0]] + x[ends[1]]) / 2, atol=1e-14)
        assert np.ptp(x[f"{body}.disc"], axis=0).max() == 0  # it has an extension of its own


def test_wheels_springs_and_gears_have_shapes() -> None:
    disk, rotor = (jp.planar_body(name, mass=2.0, inertia=0.5) for name in ("disk", "rotor"))
    other = jp.planar_body("other", mass=2.0, inertia=0.5)
    bob = jp.point_mass("bob", mass=1.0)
    mechanism = jp.Mechanism(
        [disk, rotor, other, bob],
        [
            jp.rolling_disk("road", jp.ground, O, disk, O, normal=(0, 1), radius="r"),
            jp.gear("teeth", rotor, 0.1, other, 0.3),
            jp.distance("rod", disk, O, bob, O, length=1.0),
        ],
        [jp.spring("s", jp.ground, (-1, 0), disk, O, stiffness=1.0, length=0.5)],
        {"r": 0.3},
    )
    q = jnp.array([0.0, 0.3, 0.2, 1.0, 0.0, 0.0, 1.4, 0.0, 0.0, 0.0, -0.7])
    x = drawn(mechanism, q)
    np.testing.assert_allclose(np.linalg.norm(x["road.wheel"] - [0, 0.3], axis=1), 0.3)
    np.testing.assert_allclose(x["road.ground"][:, 1], 0.0, atol=1e-9)
    turned = [0.3 * np.cos(0.2), 0.3 + 0.3 * np.sin(0.2)]
    np.testing.assert_allclose(x["road.spoke"][1], turned, atol=1e-14)
    np.testing.assert_allclose(x["rod"], [[0, 0.3], [0, -0.7]], atol=1e-14)
    np.testing.assert_allclose(x["spring 's'"][[0, -1]], [[-1, 0], [0, 0.3]], atol=1e-14)
    reach = [np.ptp(x[f"teeth.{k}.wheel"][:, 0]) / 2 for k in (1, 2)]
    np.testing.assert_allclose(reach, [0.1, 0.3])
    np.testing.assert_allclose(x["bob"], [0, -0.7])


def test_a_body_without_joints_has_the_size_of_its_radius_of_gyration() -> None:
    plate = jp.planar_body("plate", mass=2.0, inertia=0.5, center=(0.4, 0))
    x = drawn(jp.Mechanism([plate]), jnp.array([1.0, 2.0, np.pi / 2]))
    np.testing.assert_allclose(x["plate.center"], [1.0, 2.4])
    away = np.linalg.norm(x["plate.disc"] - x["plate.center"], axis=1)
    np.testing.assert_allclose(away, 0.5)
    stone = jp.spatial_body("stone", mass=2.0, inertia=(0.4, 0.5, 0.6))
    x = drawn(jp.Mechanism([stone]), jnp.array([0.0, 0, 0, 1, 0, 0, 0]))
    assert np.linalg.norm(x["stone.cross"], axis=1).max() == 0.5


def test_joints_without_a_name_or_with_that_of_a_body_are_drawn() -> None:
    bar, bob = jp.planar_body("bar", mass=1.0, inertia=0.1), jp.point_mass("bob", mass=1.0)
    joints = [
        jp.revolute("", jp.ground, O, bar, (-1, 0)),
        jp.revolute("bar", jp.ground, (2, 0), bar, (1, 0)),
        jp.distance("bob", bar, O, bob, O, length=1.0),
        jp.distance("", bar, (1, 0), bob, O, length=1.0),
    ]
    shapes = drawn(
        jp.Mechanism([bar, bob], joints, coordinates="bodies"), np.array([1.0, 0.0, 0.0, 1.0, -1.0])
    )
    np.testing.assert_array_equal(shapes[""], [0, 0])
    np.testing.assert_array_equal(shapes["bar.joint"], [2, 0])
    np.testing.assert_array_equal(shapes["bob.joint"], [[1, 0], [1, -1]])
    np.testing.assert_array_equal(shapes[".joint"], [[2, 0], [1, -1]])
    np.testing.assert_array_equal(shapes["bob"], [1, -1])
