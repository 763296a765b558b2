"""The reports of `structure` on good systems, and on systems with one defect each."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech.parts as jp
from jaxmech import (
    Acceleration,
    FixedSteps,
    Holonomic,
    System,
    assemble,
    models,
    simulate,
)
from jaxmech.analysis import Dependence, Severity, Structure, structure
from jaxmech.run import SimulationError
from tests.small import QUATERNION, REDUNDANT

REST = np.zeros(2)


def point(q: Any, v: Any, t: Any, p: Any) -> Any:
    """L of a particle of 1 kg in gravity along -y."""
    return 0.5 * v @ v - 9.81 * q[-1]


def particle(*constraints: Any, force: Any = None) -> System:
    return System(point, constraints, force, coordinates=("x", "y"))


def texts(found: Structure, least: Severity = Severity.SERIOUS) -> str:
    return "\n".join(f"{f.what} -> {f.remedy}" for f in found.findings if f.severity >= least)


def _middle(q: Any, t: Any, p: Any) -> Any:
    return q[2:4] - (q[:2] + q[4:]) / 2


def _crank(number: int) -> Holonomic:
    def crank(q: Any, t: Any, p: Any) -> Any:
        rod = q[2 * number : 2 * number + 2] - jnp.array([1.0 * number, 0.0])
        return (rod @ rod - p["l"][number] ** 2) / 2

    return Holonomic(crank, f"crank{number}")


# Three parallel cranks of length l_i carry one bar of length 2; the middle one is not needed.
THREE_CRANKS = System(
    lambda q, v, t, p: 0.5 * v @ v - 9.81 * (q[1] + q[3] + q[5]),
    [
        _crank(0),
        _crank(2),
        Holonomic(lambda q, t, p: ((q[4:] - q[:2]) @ (q[4:] - q[:2]) - 4) / 2, "bar"),
        Holonomic(_middle, "middle"),
        _crank(1),
    ],
    coordinates=("x0", "y0", "x1", "y1", "x2", "y2"),
)


@pytest.mark.slow
def test_a_redundant_loop_is_reported_by_name() -> None:
    up, across = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    q = np.tile(up, 3) + np.array([0, 0, 1, 0, 2, 0])
    found = structure(THREE_CRANKS, q, np.tile(across, 3), 0.0, {"l": np.ones(3)})
    assert found.redundant == (Dependence("crank1", (0,), ("crank0", "crank2", "middle")),)
    assert found.ranks is not None
    assert (found.ranks.here, found.ranks.nearby, found.ranks.anywhere) == (5, 5, 6)
    assert (found.ranks.position_freedom, found.ranks.velocity_freedom) == (1, 1)
    assert not found.serious
    assert "constraint 'crank1' follows from" in texts(found, Severity.NOTE)
    assert "'crank1' is redundant for these values of the parameters alone" in texts(
        found, Severity.WARNING
    )


def test_an_equation_written_twice_is_redundant_everywhere() -> None:
    found = structure(REDUNDANT.system, REDUNDANT.q, REDUNDANT.v, 0.0, REDUNDANT.params)
    assert found.redundant == (Dependence("twice", (0, 1), ("scaled",)),)
    assert found.ranks is not None
    assert found.ranks.fragile == ()
    assert found.ranks.condition == pytest.approx(1.0)
    assert not texts(found, Severity.WARNING)


@pytest.mark.slow
@pytest.mark.parametrize(("angle", "here"), [(0.0, 4), (0.3, 5)])
def test_a_singular_pose_is_found_from_nearby_states(angle: float, here: int) -> None:
    """With flat cranks one more equation is dependent, and the loop can change its branch."""
    up = np.array([np.cos(angle), np.sin(angle)])
    q = np.tile(up, 3) + np.array([0, 0, 1, 0, 2, 0])
    found = structure(THREE_CRANKS, q, np.zeros(6), 0.0, {"l": np.ones(3)})
    assert found.ranks is not None
    assert (found.ranks.here, found.ranks.nearby, found.ranks.position_freedom) == (here, 5, 1)
    assert [d.name for d in found.redundant] == ["crank1"]
    singular = here == 4
    assert found.ranks.only_here == (Dependence("bar", (0,), ("crank0", "crank2")),) * singular
    assert found.serious == singular
    expected = "singular pose: 4 independent equations here, 5 nearby. Only here equation 1 of"
    assert (expected in texts(found)) == singular


def _toggle(q: Any, t: Any, p: Any) -> Any:
    """Two rods of 1 m in one line, from (-1, 0) and (1, 0) to a point."""
    return jnp.stack([(q[0] + 1) ** 2, (q[0] - 1) ** 2]) / 2 + q[1] ** 2 / 2 - 0.5


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_straight_toggle_is_rigid_to_second_order(dtype: Any) -> None:
    """Its velocity along y lengthens both rods to second order."""
    here = np.zeros(2, dtype)
    system = particle(Holonomic(_toggle, "rods"))
    found = structure(system, here, here)
    assert found.ranks is not None
    assert (found.ranks.here, found.ranks.nearby, found.ranks.position_freedom) == (1, 2, 0)
    assert found.redundant == ()
    assert "singular pose" in texts(found)
    assert "'y' can have a velocity here, but no motion" in texts(found)
    assert "1 of 2 equations here, 2 to second order" in repr(found)


def test_a_run_that_ends_in_a_singular_pose_says_so() -> None:
    system = particle(Holonomic(_toggle, "rods"))
    with pytest.raises(SimulationError, match="only 1 of 2 constraint equations are independent"):
        simulate(system, REST, REST, np.linspace(0, 1, 3), steps=FixedSteps(10))


@pytest.mark.slow
def test_a_toggle_on_a_free_base_keeps_the_freedoms_of_its_base() -> None:
    """Three points in one line, held by rods of 1, 1 and 2 m, move in the plane as one body."""

    def rods(q: Any, t: Any, p: Any) -> Any:
        a, b, c = q[:2], q[2:4], q[4:]
        pairs = ((a, b, 1.0), (b, c, 1.0), (a, c, 2.0))
        return jnp.stack([((x - y) @ (x - y) - d**2) / 2 for x, y, d in pairs])

    names = ("xa", "ya", "xb", "yb", "xc", "yc")
    system = System(point, [Holonomic(rods, "rods")], coordinates=names)
    pose = np.array([0.0, 0.0, 0.6, 0.8, 1.2, 1.6])
    found = structure(system, pose, np.zeros(6))
    assert found.ranks is not None
    assert (found.ranks.here, found.ranks.nearby, found.ranks.position_freedom) == (2, 3, 3)
    assert "rigid to second order" in texts(found)


@pytest.mark.slow
def test_an_overconstrained_loop_is_not_rigid() -> None:
    """Out of its plane its constraints depend on each other, and do not bend along its motion."""
    crank, coupler, rocker = (
        jp.spatial_body(name, mass=1.0, inertia=(0.1, 0.2, 0.25)) for name in ("a", "b", "c")
    )
    four_bar = jp.Mechanism(
        [crank, coupler, rocker],
        [
            jp.revolute("O", jp.ground, (0, 0, 0), crank, (0, 0, 0), axis=(0, 0, 1)),
            jp.revolute("A", crank, (0.35, 0, 0), coupler, (0, 0, 0), axis=(0, 0, 1)),
            jp.revolute("B", coupler, (1.2, 0, 0), rocker, (0.9, 0, 0), axis=(0, 0, 1)),
            jp.revolute("C", jp.ground, (1.05, 0, 0), rocker, (0, 0, 0), axis=(0, 0, 1)),
        ],
        coordinates="bodies",
    )
    turned = jp.Start((1.05, 0, 0), jp.quaternion((0, 0, 1), 1.6))
    starts = {"a": jp.Start((0, 0, 0)), "b": jp.Start((0.35, 0, 0)), "c": turned}
    guess = four_bar.guess(starts)
    found = structure(four_bar, *assemble(four_bar, *guess))
    assert found.ranks is not None
    assert (found.ranks.here, found.ranks.anywhere, found.ranks.rigid) == (20, 21, ())
    assert found.ranks.position_freedom == 1


def test_nearly_singular() -> None:
    tilted = 1e-5
    lines = [
        Holonomic(lambda q, t, p: q[0], "line"),
        Holonomic(lambda q, t, p: q[0] + p * q[1], "other"),
    ]
    found = structure(particle(*lines), REST, REST, 0.0, tilted)
    assert found.ranks is not None
    assert found.ranks.here == 2
    assert found.ranks.condition == pytest.approx(4 / tilted**2, rel=1e-4)
    assert "nearly singular pose" in texts(found, Severity.WARNING)
    assert "solver=QR()" in texts(found, Severity.WARNING)
    assert "no degree of freedom is left" in texts(found, Severity.NOTE)


def test_positions_that_contradict_each_other() -> None:
    apart = [
        Holonomic(lambda q, t, p: q[0], "left"),
        Holonomic(lambda q, t, p: q[0] - 1, "right"),
        Holonomic(lambda q, t, p: q[1], "floor"),
    ]
    found = structure(particle(*apart), REST, REST)
    assert found.serious
    assert "constraints 'left' and 'right' contradict each other near this state; " in texts(found)
    assert "violation found is 0.5" in texts(found)
    assert "'floor'" not in texts(found)
    assert "harmless" not in texts(found)


@pytest.mark.slow
def test_accelerations_that_contradict_each_other() -> None:
    servos = [
        Acceleration(lambda q, v, a, t, p: a[0] - 1, "servo"),
        Acceleration(lambda q, v, a, t, p: a[1], "lift"),
        Acceleration(lambda q, v, a, t, p: a[0] - 3, "other servo"),
        Acceleration(lambda q, v, a, t, p: 2 * a[0] - 2, "same servo"),
    ]
    found = structure(particle(*servos), REST, REST)
    text = "no acceleration satisfies constraint 'other servo' and 'servo' at once"
    assert text in texts(found)
    assert "'lift'" not in texts(found)
    harmless = [f.what for f in found.findings if "harmless" in f.remedy]
    assert harmless == ["equation 1 of constraint 'same servo' follows from 'servo'"]


def test_a_constraint_that_is_constant() -> None:
    def fixed(q: Any, t: Any, p: Any) -> Any:
        return jnp.stack([p["gap"], q[0]])

    system = particle(Holonomic(fixed, "gap"))
    good, bad = (structure(system, REST, REST, 0.0, {"gap": gap}) for gap in (0.0, 0.25))
    for found in (good, bad):
        assert found.ranks is not None
        assert found.ranks.silent == ("gap",)
        assert "an equation of constraint 'gap' does not depend" in texts(found, Severity.WARNING)
    assert not good.serious
    assert "constraints 'gap' cannot be met near this state" in texts(bad)
    assert "violation found is 0.25" in texts(bad)


def test_round_off_of_accelerations_is_no_contradiction() -> None:
    """Three equations hold all coordinates, and a redundant one is met to round-off alone."""
    rows = np.random.default_rng(1).normal(size=(3, 3))
    rows = np.vstack([rows, rows[0] + rows[1], np.zeros(3)])
    system = System(
        lambda q, v, t, p: v @ v / 2 - q @ jnp.array([40.0, -30.0, 9.81]),
        [Holonomic(lambda q, t, p: jnp.asarray(rows) @ q, "held")],
        coordinates=("a", "b", "c"),
    )
    found = structure(system, np.zeros(3), np.zeros(3), 0.0, None)
    assert "no acceleration satisfies" not in texts(found)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "beside"), [(np.float32, False), (np.float64, True)])
def test_a_constraint_that_is_squared(dtype: Any, beside: bool) -> None:
    """No singular pose and no equation without coordinates is reported."""
    flat = Holonomic(lambda q, t, p: (q @ q - 1) ** 2, "square")
    itself = Holonomic(lambda q, t, p: q @ q - 1, "sphere")
    system = particle(itself, flat) if beside else particle(flat)
    found = structure(system, np.array([0.6, 0.8], dtype), REST.astype(dtype), dtype(0))
    assert found.ranks is not None
    assert found.ranks.flat == ("square",)
    (told,) = [f for f in found.findings if f.severity > Severity.NOTE]
    assert "the gradient of constraint 'square' vanishes wherever it holds" in told.what
    assert "give phi itself" in told.remedy


def test_the_apex_of_a_cone_is_not_reported_as_squared() -> None:
    """The gradient of the cone vanishes at its apex alone."""
    cone = particle(Holonomic(lambda q, t, p: q[0] ** 2 - q[1] ** 2, "cone"))
    found = structure(cone, REST, REST)
    assert found.ranks is not None
    assert (found.ranks.flat, found.ranks.here, found.ranks.nearby) == ((), 0, 1)


@pytest.mark.slow
def test_a_light_body_between_heavy_ones_is_reported_in_single_precision() -> None:
    """`simulate` would end with the status `ILL_CONDITIONED`."""
    row = System(
        lambda x, v, t, p: 0.5 * (jnp.array([1, p, 1], x.dtype) * v * v).sum(),
        [Holonomic(lambda x, t, p: x[1:] - x[:-1], "rods")],
        coordinates=("first", "link", "last"),
    )
    rest = np.zeros(3, np.float32)
    light, equal = (structure(row, rest, rest, 0.0, np.float32(m)) for m in (1e-5, 1.0))
    assert "masses that differ greatly" in texts(light, Severity.WARNING)
    assert "projection=Projection(solver=QR())" in texts(light, Severity.WARNING)
    assert texts(equal, Severity.WARNING) == ""


def test_an_inconsistent_state_is_reported_with_a_remedy() -> None:
    model = models.pendulum()
    found = structure(model.system, [0.6, -0.9], [0.0, 0.1], 0.0, model.params)
    assert [(v.name, v.level) for v in found.violations] == [
        ("rod", "position"),
        ("rod", "velocity"),
    ]
    length = np.hypot(0.6, 0.9)  # the nearest point lies on the line to the pivot
    changes = np.array([0.6, -0.9]) / length - [0.6, -0.9]
    assert f"the level of its position by {(length**2 - 1) / 2:.3g}" in texts(found)
    assert f"x2 by {changes[1]:+.3g}" in texts(found)
    assert f"x1 by {changes[0]:+.3g}" in texts(found)
    good = structure(model.system, *model.initial(), 0.0, model.params)
    assert good.violations == ()
    assert not good.serious


def test_masses_that_are_missing_singular_or_negative() -> None:
    def of_masses(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * p["m"] @ v**2 - 9.81 * q[1]

    free = System(of_masses, coordinates=("x", "y"))
    tied = System(
        of_masses, [Holonomic(lambda q, t, p: q[0] - q[1], "tie")], coordinates=("x", "y")
    )
    missing = structure(free, REST, REST, 0.0, {"m": np.array([1.0, 0.0])})
    assert missing.mass is not None
    assert (missing.mass.rank, missing.mass.undetermined) == (1, ("y",))
    assert "determines the acceleration of 'y'" in texts(missing)
    singular = structure(tied, REST, REST, 0.0, {"m": np.array([1.0, 0.0])})
    assert singular.mass is not None
    assert (singular.mass.undetermined, singular.mass.foreseen) == ((), False)
    assert "UdwadiaKalaba(singular_mass=True)" in texts(singular)
    negative = structure(free, REST, REST, 0.0, {"m": np.array([-1.0, 2.0])})
    assert "the kinetic energy is negative in a direction of 'x'" in texts(negative)
    body = structure(QUATERNION.system, QUATERNION.q, QUATERNION.v, 0.0, QUATERNION.params)
    assert body.mass is not None
    assert (body.mass.rank, body.mass.foreseen, body.serious) == (3, True, False)


def test_functions_that_are_not_finite_are_reported_by_name() -> None:
    def drag(q: Any, v: Any, t: Any, p: Any) -> Any:
        return -p["c"] * jnp.sqrt(v @ v) * v

    fields = {"c": 0.1, "l": 1.0}
    no_slope = structure(particle(force=drag), [1.0, 2.0], REST, 0.0, fields)
    assert no_slope.ranks is not None
    assert "`force` can be simulated, but not differentiated" in texts(no_slope)
    assert 'has no finite derivative with respect to "x\'" and "y\'"' in texts(no_slope)
    assert "jnp.where(safe, x, 1.0)" in texts(no_slope)
    assert not structure(particle(force=drag), [1.0, 2.0], [0.1, 0.0], 0.0, fields).serious
    stick = Holonomic(lambda q, t, p: jnp.sqrt(q @ q) - p["l"], "stick")
    no_motion = structure(particle(stick), REST, REST, 0.0, {"l": 0.0})
    assert (no_motion.ranks, no_motion.mass) == (None, None)
    assert "constraint 'stick' is finite, but the derivatives" in texts(no_motion)
    root = particle(force=lambda q, v, t, p: jnp.sqrt(q - 1))
    assert "`force` is non-finite" in texts(structure(root, REST, REST))


def test_unused_parameters_are_reported() -> None:
    parameters = {"m": 1.0, "old": [3.0, 4.0], "g": 9.81}

    def with_parameters(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * p["m"] * v @ v - p["g"] * q[1]

    found = structure(System(with_parameters, coordinates=("x", "y")), REST, REST, 0.0, parameters)
    assert found.unused == ("old[0]", "old[1]")
    assert "nothing in the motion depends on the parameters" in texts(found, Severity.NOTE)


@pytest.mark.slow
def test_velocities_have_fewer_freedoms_than_positions() -> None:
    model = models.rolling_wheel()
    found = structure(model.system, *model.initial(), 0.0, model.params)
    assert found.ranks is not None
    assert (found.ranks.position_freedom, found.ranks.velocity_freedom) == (4, 2)
    assert [(c.name, c.kind) for c in found.constraints] == [
        ("rolling_x", "Nonholonomic"),
        ("rolling_y", "Nonholonomic"),
    ]


@pytest.mark.slow
def test_mass_and_force_must_be_those_of_the_lagrangian() -> None:
    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * p["m"] * v @ v + q[0] * v[0] * v[1] - 9.81 * q[1] + t * v[2]

    def with_force(*force: float) -> System:
        def mass_and_force(q: Any, v: Any, t: Any, p: Any) -> Any:
            coupled = jnp.zeros((3, 3)).at[[0, 1], [1, 0]].set(q[0])
            return p["m"] * jnp.eye(3) + coupled, jnp.array([*force[:1], -(v[0] ** 2), *force[1:]])

        names = ("x", "y", "z")
        states = {"states": ("current",), "rates": lambda q, v, t, p: -v[3]}
        return System(lagrangian, coordinates=names, mass_and_force=mass_and_force, **states)

    state = [0.3, 0.4, 0.0, 0.0], [1.0, 2.0, 0.5, 0.1], 0.2, {"m": 2.0}
    # The weight is missing in the second row; the term t * v[2] makes -1 in the third.
    assert "of `lagrangian` in the rows of 'y'" in texts(structure(with_force(0.0, -1.0), *state))
    wrong = texts(structure(with_force(0.5, 1.0), *state))
    assert "rows of 'x', 'y' and 'z' -> correct one of them" in wrong
    free = System(
        lambda q, v, t, p: 0.5 * v @ v + q[0] * v[1],
        coordinates=("x", "y"),
        mass_and_force=lambda q, v, t, p: (jnp.eye(2), jnp.stack([v[1], -v[0]])),
    )
    assert "mass_and_force" not in texts(structure(free, REST + 0.1, REST + 0.2), Severity.NOTE)
