"""The geometry of a mechanism made from its parts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import parts as jp
from jaxmech.geometry import Solid
from jaxmech.parts import Visual
from tests.parts.mechanisms import parallel_four_bar

O = (0, 0)  # noqa: E741
P = (0, 0, 0)


def drawn(mechanism: jp.Mechanism, q: Any) -> dict[str, Any]:
    q = jnp.asarray(q)
    found = jax.jit(lambda q: mechanism.geometry(q, jnp.zeros(()), dict(mechanism.params)))(q)
    return jax.tree.map(np.asarray, found)


def placed(solid: Solid) -> np.ndarray:
    """The vertices where they are drawn, (V, d)."""
    d = len(solid.origin)
    return solid.origin + solid.vertices[:, :d] @ solid.axes.T


def test_links_go_around_their_joints() -> None:
    mechanism, starts = parallel_four_bar(angle=1.1)
    q, _ = mechanism.guess(starts)
    x = drawn(mechanism, q)
    top = np.array([np.cos(1.1), np.sin(1.1)])
    np.testing.assert_allclose(x["B0"].origin, top, atol=1e-6)
    np.testing.assert_allclose(x["A1"].origin, [1, 0], atol=1e-6)
    half = 0.045  # of a link as long as the longest
    for body, ends in (("left", ("A0", "B0")), ("coupler", ("B0", "B1")), ("right", ("A1", "B1"))):
        for end in ends:
            away = np.linalg.norm(placed(x[body]) - x[end].origin, axis=1)
            assert away.min() == pytest.approx(half, rel=1e-2)
        middle = (x[ends[0]].origin + x[ends[1]].origin) / 2
        np.testing.assert_allclose(x[f"{body}.center"], middle, atol=1e-6)
    assert {"A0.ground", "A1.ground"} <= x.keys()  # and no others are on the ground
    assert not {"B0.ground", "B1.ground"} & x.keys()


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
        [
            jp.spring("s", jp.ground, (-1, 0), disk, O, stiffness=1.0, length=0.5),
            jp.damper("d", jp.ground, (-1, 0), disk, O, damping=1.0),
        ],
        {"r": 0.3},
    )
    x = drawn(mechanism, [0.0, 0.3, 0.2, 1.0, 0.0, 0.0, 1.4, 0.0, 0.0, 0.0, -0.7])
    away = np.linalg.norm(placed(x["road.wheel"]) - [0, 0.3], axis=1)
    assert away.max() == pytest.approx(0.3)
    np.testing.assert_allclose(x["road.ground"][:, 1], 0.0, atol=1e-9)
    np.testing.assert_allclose(x["road.wheel"].axes[:, 0], [np.cos(0.2), np.sin(0.2)], atol=1e-6)
    for name, start, end in (
        ("rod", [0, 0.3], [0, -0.7]),
        ("spring 's'", [-1, 0], [0, 0.3]),
        ("damper 'd'", [-1, 0], [0, 0.3]),
    ):
        np.testing.assert_allclose(x[name].origin, start, atol=1e-6)
        np.testing.assert_allclose(x[name].origin + x[name].axes[:, 0], end, atol=1e-6)
    reach = [np.ptp(placed(x[f"{k}.teeth"])[:, 0]) / 2 for k in ("rotor", "other")]
    np.testing.assert_allclose(reach, [0.111, 0.311], rtol=0.02)  # with their teeth
    np.testing.assert_allclose(placed(x["bob"]).mean(axis=0), [0, -0.7], atol=1e-6)


def test_a_body_is_drawn_by_its_visuals() -> None:
    plate = jp.planar_body(
        "plate",
        **jp.solid_box(1.0, ("width", 0.5)),
        center=(1.0, 0.0),
    )
    x = drawn(jp.Mechanism([plate], params={"width": 2.0}), [0.0, 0, 0])
    corners = placed(x["plate"])
    np.testing.assert_allclose([corners.min(0), corners.max(0)], [[0, -0.25], [2, 0.25]], atol=1e-6)
    quarter = jp.quaternion((0, 0, 1), np.pi / 2)
    crate = jp.spatial_body(
        "crate", mass=1.0, inertia=(1.0, 1.0, 1.0), center=(0, 0, 1.0),
        visual=[
            Visual.box((1.0, 2.0, 3.0), turn=tuple(np.asarray(quarter).tolist())),
            Visual.sphere(0.5, at=(0, 0, 4.0), color=(1.0, 0.0, 0.0)),
            Visual.outline([(0, 0), (2, 0), (2, 2), (1, 0.5), (0, 2)], 0.1),
        ],
    )  # fmt: skip
    lamp = Visual.cylinder(0.1, 1.0, at=(5.0, 0, 0))
    x = drawn(jp.Mechanism([crate], scenery=[lamp]), [0.0, 0, 0, 1, 0, 0, 0])
    np.testing.assert_allclose(np.ptp(placed(x["crate"]), axis=0), [2, 1, 3], atol=1e-5)
    np.testing.assert_allclose(placed(x["crate"]).mean(axis=0), [0, 0, 1.0], atol=1e-5)
    np.testing.assert_allclose(x["crate.2"].color, [1, 0, 0])
    assert np.isnan(x["crate"].color).all()
    np.testing.assert_allclose(np.ptp(placed(x["crate.3"]), axis=0), [2, 2, 0.1], atol=1e-5)
    assert placed(x["ground.0"])[:, 0].min() == pytest.approx(4.9, rel=1e-5)
    with pytest.raises(TypeError, match="'crate' must have a `Visual`"):
        jp.spatial_body("crate", mass=1.0, inertia=(1, 1, 1), visual="box")
    with pytest.raises(ValueError, match="`points` must have a shape"):
        Visual.outline([(0, 0), (1, 1)])


@pytest.mark.parametrize(
    ("joint", "q", "parts"),
    [
        (
            lambda b: jp.revolute("j", jp.ground, P, b, (0, 0, 1), axis=(1, 0, 0)),
            [0.0],
            {"j", "j.collar", "j.ground"},
        ),
        (
            lambda b: jp.prismatic("j", jp.ground, P, b, P, axis=(0, 0, 1)),
            [0.5],
            {"b.block", "j.rail"},
        ),
        (
            lambda b: jp.spherical("j", jp.ground, P, b, (0, 0, 1)),
            [1.0, 0, 0, 0],
            {"j", "j.ground"},
        ),
        (
            lambda b: jp.universal(
                "j", jp.ground, P, b, (0, 0, 1), axis_a=(1, 0, 0), axis_b=(0, 1, 0)
            ),
            [0.0, 0.0],
            {"j", "j.arm_a", "j.arm_b", "j.ground"},
        ),
        (
            lambda b: jp.screw("j", jp.ground, P, b, P, axis=(0, 0, 1), lead=0.1),
            [0.3],
            {"j", "j.rail"},
        ),
        (
            lambda b: jp.cylindrical("j", jp.ground, P, b, P, axis=(0, 1, 0)),
            [0.3, 0.2],
            {"j", "j.rail"},
        ),
        (
            lambda b: jp.planar("j", jp.ground, P, b, P, normal=(0, 0, 1)),
            [0.3, 0.2, 0.1],
            {"j", "j.plate"},
        ),
    ],
)  # fmt: skip
def test_joints_are_drawn_as_what_they_are(joint: Any, q: Any, parts: set[str]) -> None:
    body = jp.spatial_body("b", mass=1.0, inertia=(0.1, 0.1, 0.1))
    mechanism = jp.Mechanism([body], [joint(body)])
    shapes = mechanism.geometry(jnp.asarray(q), 0.0, {})
    assert shapes.keys() - {"b", "b.center"} == parts
    for shape in (x for x in shapes.values() if isinstance(x, Solid)):
        assert np.isfinite(shape.vertices).all()
        assert shape.faces.max() < len(shape.vertices)
        assert np.linalg.det(shape.axes) > 0  # else faces would be seen from inside


def test_stops_of_a_hinge_in_the_plane_are_where_its_body_turns_to() -> None:
    door = jp.planar_body("door", mass=20.0, inertia=6.0, center=(0.4, 0.1))
    hinge = jp.revolute("hinge", jp.ground, (0.2, 1.0), door, (0.0, 0.3))
    mechanism = jp.Mechanism([door], [hinge, jp.stop("frame", hinge, lower=-0.5, upper=1.7)])
    x = drawn(mechanism, mechanism.guess({"hinge": jp.Start(1.0)})[0])
    for end, angle in {"lower": -0.5, "upper": 1.7}.items():
        q, _ = mechanism.guess({"hinge": jp.Start(angle)})
        center = mechanism.point("door", (0.4, 0.1), q)
        np.testing.assert_allclose(x[f"frame.{end}"].origin, center, atol=1e-12)
