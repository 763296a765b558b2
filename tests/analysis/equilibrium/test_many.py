"""Many equilibria at once, and equilibria over a parameter, against closed forms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm


def _angles(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A double pendulum by the angles of its rods, from the downward vertical."""
    x = jnp.cumsum(jnp.stack([jnp.sin(q), -jnp.cos(q)]), axis=1)
    speed = jnp.cumsum(jnp.stack([v * jnp.cos(q), v * jnp.sin(q)]), axis=1)
    return (speed**2).sum() / 2 - p["g"] * x[1].sum()


DOUBLE = jm.System(_angles, coordinates=("upper", "lower"))


@pytest.mark.slow
def test_a_double_pendulum_has_four_equilibria() -> None:
    """Each rod is down or up, and each that is up adds one negative eigenvalue."""
    turn = {"upper": 2 * np.pi, "lower": 2 * np.pi}
    found = jm.analysis.equilibria(
        DOUBLE, [0.1, 0.2], {"g": 9.81}, spread=np.pi, periods=turn, starts=60
    )
    assert [int(x.index) for x in found.found] == [0, 1, 1, 2]
    np.testing.assert_allclose(found.energies, 9.81 * np.array([-3, -1, 1, 3]), rtol=1e-12)
    assert sum(found.hits) == found.starts
    assert [int(x.stability) for x in found.found] == [jm.analysis.Stability.STABLE] + [0] * 3
    np.testing.assert_allclose([float(x.assessment.unstable) for x in found.found], [0, 1, 1, 2])


def _hoop(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A bead on a hoop of radius 1 that turns at the rate w, in the frame of the hoop."""
    return (v[0] ** 2 + (p["w"] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])


BEAD = jm.System(_hoop, coordinates=("angle",))


def test_the_pitchfork_of_a_bead_on_a_hoop() -> None:
    """The bottom loses its stability at w^2 = g / R, to cos(angle) = g / (R w^2)."""
    found = jm.analysis.continuation(BEAD, [0.0], {"w": 2.0}, "w", 5.0, step=0.05)
    main, *sides = found.branches
    (point,) = found.special
    assert point.kind == "branch point"
    np.testing.assert_allclose(point.value, np.sqrt(9.81), rtol=1e-9)
    np.testing.assert_array_equal(main.index, main.values > point.value)
    assert not np.any(main.q)
    assert [np.sign(side.q[-1, 0]) for side in sides] in ([1.0, -1.0], [-1.0, 1.0])
    for side in sides:
        np.testing.assert_allclose(np.cos(side.q[:, 0]), 9.81 / side.values**2, rtol=1e-8)
        assert np.all(side.stability[1:] == jm.analysis.Stability.STABLE)
        np.testing.assert_allclose(side.values[-1], 5.0, rtol=1e-12)


def _truss(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Two springs to a mass between two walls that are 2 apart, under a load F."""
    return v @ v / 2 - (jnp.sqrt(1 + q[0] ** 2) - p["l"]) ** 2 - p["F"] * q[0]


@pytest.mark.slow
def test_a_shallow_truss_snaps_through_at_a_fold() -> None:
    """Von Mises: F = 2 (l^(2/3) - 1)^(3/2), where the height squared is l^(2/3) - 1."""
    truss, length = jm.System(_truss, coordinates=("height",)), 1.25
    start = [np.sqrt(length**2 - 1)]
    found = jm.analysis.continuation(truss, start, {"F": 0.0, "l": length}, "F", 0.5, step=0.05)
    (fold,) = found.special
    assert fold.kind == "fold"
    np.testing.assert_allclose(fold.value, 2 * (length ** (2 / 3) - 1) ** 1.5, rtol=1e-9)
    np.testing.assert_allclose(fold.q, [np.sqrt(length ** (2 / 3) - 1)], rtol=1e-6)
    branch = found.branches[0]
    assert branch.index[0] == 0
    assert branch.index[-1] == 1
    np.testing.assert_allclose(branch.values[-1], 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="but is 'load'; the parameters are F, l"):
        jm.analysis.continuation(truss, start, {"F": 0.0, "l": length}, "load", 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("metre", [1e-3, 1.0, 1e3])
def test_a_fold_in_any_unit_of_length(metre: float) -> None:
    """Of a bar of two on supports a distance of 1 m from its middle, which is 0.3 m higher."""

    def energies(q: Any, v: Any, t: Any, p: Any) -> Any:
        longer = jnp.sqrt(p["b"] ** 2 + q[0] ** 2) - jnp.sqrt(p["b"] ** 2 + p["h"] ** 2)
        return v[0] ** 2 / 2 - 1e3 * longer**2 - p["F"] * q[0]

    params = {"b": metre, "h": 0.3 * metre, "F": 0.0}
    truss = jm.System(energies, coordinates=("y",))
    found = jm.analysis.continuation(truss, [0.3 * metre], params, "F", 60.0 * metre)
    (fold,) = found.special
    y = np.sqrt(1.09 ** (1 / 3) - 1)  # where the derivative of the force vanishes
    force = 2e3 * y * (np.sqrt(1.09 / (1 + y**2)) - 1)
    assert fold.kind == "fold"
    np.testing.assert_allclose(fold.value, force * metre, rtol=1e-9)
    assert found.branches[0].ended == "range"


def _column(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Two bars on hinges with springs, and the masses 2 and 1 at their ends."""
    motion = 3 * v[0] ** 2 + 2 * v[0] * v[1] * jnp.cos(q[0] - q[1]) + v[1] ** 2
    return motion / 2 - (q[0] ** 2 + (q[1] - q[0]) ** 2) / 2


def _follower(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A load P along the upper bar."""
    return jnp.stack([p["P"] * jnp.sin(q[0] - q[1]), 0.0])


COLUMN = jm.System(_column, force=_follower, coordinates=("lower", "upper"))


@pytest.mark.slow
def test_a_follower_load_causes_flutter_but_no_branch() -> None:
    """Ziegler's column of two bars: P l / k = 7/2 - sqrt(2); its stiffness is never singular."""
    found = jm.analysis.continuation(COLUMN, [0.0, 0.0], {"P": 0.0}, "P", 4.0)
    (flutter,) = found.special
    assert flutter.kind == "Hopf"
    np.testing.assert_allclose(flutter.value, 3.5 - np.sqrt(2), rtol=1e-6)


@pytest.mark.slow
def test_equilibria_have_second_derivatives() -> None:
    """The second derivative of cos(angle) = g / w^2 with respect to w."""

    def angle(w: Any) -> Any:
        return jm.analysis.equilibrium(BEAD, jnp.array([0.9]), {"w": w}).q[0]

    w = 5.0
    cos = 9.81 / w**2
    sin, slope = np.sqrt(1 - cos**2), 2 * 9.81 / w**3
    np.testing.assert_allclose(jax.grad(angle)(w), slope / sin, rtol=1e-10)
    second = -3 * slope / w / sin - slope * cos * slope / sin**3
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(angle)))(w), second, rtol=1e-9)


def test_damping_inside_a_shaft_makes_it_unstable_at_a_known_speed() -> None:
    """Hopf: beyond the natural frequency times 1 + outer over inner damping."""

    def rotor(q: Any, v: Any, t: Any, p: Any) -> Any:
        turning = p["w"] * (q[0] * v[1] - q[1] * v[0]) + p["w"] ** 2 * q @ q / 2
        return v @ v / 2 + turning - 2 * q @ q

    def loads(q: Any, v: Any, t: Any, p: Any) -> Any:
        return -0.3 * v - 0.1 * p["w"] * jnp.stack([-q[1], q[0]])

    shaft = jm.System(rotor, force=loads, coordinates=("x", "y"))

    def at(w: Any) -> jm.analysis.Linearization:
        return jm.analysis.linearize(shaft, jnp.zeros(2), jnp.zeros(2), {"w": w})

    found = jm.analysis.root_locus(at, jnp.linspace(1.0, 5.0, 9), name="w")
    (crossing,) = found.crossings
    np.testing.assert_allclose(crossing.value, 2.0 * (1 + 0.1 / 0.2), rtol=1e-10)
    np.testing.assert_allclose(crossing.frequency * 2 * np.pi, 1.0, rtol=1e-8)  # 3 - 2, turning
    steps = np.diff(np.asarray(found.eigenvalues), axis=0)
    assert np.abs(steps).max() < 0.6  # no branch jumps to another one
    with pytest.raises(ValueError, match="increasing"):
        jm.analysis.root_locus(at, [2.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("middle", [1.4, np.sqrt(2.0)])
def test_a_real_eigenvalue_passes_the_zeros_of_a_symmetry(middle: float) -> None:
    """s^2 + s + 2 - p^2 = 0 beside a coordinate that is free: s = 0 at p = sqrt(2)."""

    def plane(q: Any, v: Any, t: Any, p: Any) -> Any:
        return v @ v / 2 - (2 - p**2) * q[1] ** 2 / 2

    def loads(q: Any, v: Any, t: Any, p: Any) -> Any:
        return jnp.stack([0 * v[0], -v[1]])

    system = jm.System(plane, force=loads, coordinates=("free", "held"))
    (found,) = jm.analysis.root_locus(
        lambda p: jm.analysis.linearize(system, jnp.zeros(2), jnp.zeros(2), p), [1.35, middle, 2.0]
    ).crossings
    np.testing.assert_allclose(found.value, np.sqrt(2), atol=1e-12)
    assert (found.frequency, found.rising) == (0.0, True)


def _wells(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - ((q[0] / p) ** 2 - 1) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("length", [1.0, 1e-7])
def test_equal_wells_are_two_families_though_a_direction_is_free(length: float) -> None:
    """Their energies and eigenvalues agree, and so would those of one family."""
    free = jm.System(_wells, coordinates=("x", "y"))
    start, spread = length * np.array([0.3, 0.0]), 2 * length
    found = jm.analysis.equilibria(free, start, length, starts=12, spread=spread)
    places = [float(x.q[0]) / length for x in found.found]
    np.testing.assert_allclose(sorted(places), [-1.0, 0.0, 1.0], atol=1e-6)


def _groove(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v @ v / 2 - (jnp.sqrt(q @ q) - 1) ** 2


@pytest.mark.slow
def test_a_ring_of_equilibria_is_one_family() -> None:
    ring = jm.System(_groove, coordinates=("x", "y"))
    found = jm.analysis.equilibria(ring, [0.9, 0.1], starts=12)
    assert found.hits == (12,)


@pytest.mark.slow
def test_a_crossing_at_one_of_the_values_and_departures_from_the_axis() -> None:
    """A top-heavy rod held by a spring, with and without damping; Ziegler's column of two bars."""

    def rod(q: Any, v: Any, t: Any, p: Any) -> Any:
        return v[0] ** 2 / 2 - 10.0 * jnp.cos(q[0]) - p["k"] * q[0] ** 2 / 2

    zero = jnp.zeros(1)
    for damping in (0.0, 0.5):
        held = jm.System(rod, force=lambda q, v, t, p, d=damping: -d * v, coordinates=("angle",))
        found = jm.analysis.root_locus(
            lambda k, held=held: jm.analysis.linearize(held, zero, zero, {"k": k}),
            jnp.linspace(5, 15, 11),
        )
        (crossing,) = found.crossings
        np.testing.assert_allclose(crossing.value, 10.0, rtol=1e-9)
        assert (crossing.frequency, crossing.rising) == (0.0, False)

    def at(P: Any) -> Any:
        return jm.analysis.linearize(COLUMN, jnp.zeros(2), jnp.zeros(2), {"P": P})

    (flutter,) = jm.analysis.root_locus(at, jnp.linspace(0.0, 4.0, 21)).crossings
    np.testing.assert_allclose(flutter.value, 3.5 - np.sqrt(2), rtol=1e-9)
    assert flutter.rising
    # Both squared frequencies are k / (sqrt(2) m l^2) there.
    np.testing.assert_allclose(flutter.frequency, 0.5**0.25 / (2 * np.pi), rtol=1e-4)
