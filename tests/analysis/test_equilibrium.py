"""Equilibria and steady motions against closed forms, their derivatives, and missing ones.

At the end, equilibria in batches, and the loss of stability over a parameter.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
import jaxmech.parts as jp
from jaxmech.analysis import equilibrium
from jaxmech.analysis.equilibrium import solve
from jaxmech.analysis.equilibrium_equations import EquilibriumStatus, prepared, problem
from jaxmech.compiler.frontend.build import function_kernel
from jaxmech.compiler.platforms import finite_arguments
from tests.small import PENDULUM, REDUNDANT

LINKS = 3


def _hanging(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - p["g"] * q[1::2].sum()


def _rods(q: Any, t: Any, p: Any) -> Any:
    """Rods of 1 m between two supports that are p["d"] apart, with masses of 1 kg between them."""
    end = jnp.stack([p["d"], 0.0 * p["d"]])[None]
    places = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(-1, 2), end])
    rods = places[1:] - places[:-1]
    return (rods**2).sum(1) / 2 - 0.5


CATENARY = jm.System(
    _hanging,
    [jm.Holonomic(_rods, "rods")],
    coordinates=tuple(f"{a}{k}" for k in range(LINKS) for a in "xy"),
)
SPAN = {"g": 9.81, "d": 2.6}


def sagging() -> np.ndarray:
    x = np.linspace(0, SPAN["d"], LINKS + 2)[1:-1]
    return np.stack([x, -1.2 * np.sin(np.pi * x / SPAN["d"])], axis=1).ravel()


@pytest.mark.slow
def test_a_chain_between_supports_hangs_as_the_difference_equation_says() -> None:
    """The horizontal tension is the same everywhere, the vertical one grows by m g at each mass."""
    found = equilibrium(CATENARY, sagging(), SPAN)
    places = np.concatenate([[[0, 0]], np.asarray(found.q).reshape(-1, 2), [[SPAN["d"], 0]]])
    rods = places[1:] - places[:-1]
    np.testing.assert_allclose(np.linalg.norm(rods, axis=1), 1.0, rtol=1e-14)
    tension = -np.asarray(found.multipliers["rods"])[:, None] * rods
    np.testing.assert_allclose(tension[:, 0], tension[0, 0], rtol=1e-13)
    np.testing.assert_allclose(np.diff(tension[:, 1]), SPAN["g"], rtol=1e-13)
    # slopes of the rods: H tan = m g (k - LINKS / 2), and the span is the sum of the cosines
    slopes = SPAN["g"] * (np.arange(LINKS + 1) - LINKS / 2) / tension[0, 0]
    np.testing.assert_allclose(rods[:, 1] / rods[:, 0], slopes, atol=1e-12)
    np.testing.assert_allclose((1 / np.sqrt(1 + slopes**2)).sum(), SPAN["d"], rtol=1e-13)
    np.testing.assert_allclose(found.reactions["rods"][1::2], SPAN["g"], rtol=1e-13)


@pytest.mark.slow
def test_a_long_chain_hangs_from_a_guess_that_violates_all_rods() -> None:
    """Twenty rods, each of which is off by a tenth of its length: no whole Newton step helps."""
    count, length = 20, 0.15

    def rods(q: Any, t: Any, p: Any) -> Any:
        places = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(-1, 2)])
        return ((places[1:] - places[:-1]) ** 2).sum(1) / 2 - length**2 / 2

    names = tuple(f"{a}{k}" for k in range(count) for a in "xy")
    chain = jm.System(_hanging, [jm.Holonomic(rods)], coordinates=names)
    down = np.stack([np.zeros(count), -length * np.arange(1.0, count + 1)], axis=1).ravel()
    guess = down + 0.1 * length * jax.random.normal(jax.random.key(1), (2 * count,))
    found = solve(*prepared(chain, guess, SPAN, 0.0, (), None))  # without its stability
    assert EquilibriumStatus(int(found.status)) is EquilibriumStatus.FOUND
    np.testing.assert_allclose(found.q, down, atol=1e-13)
    force = np.asarray(found.multipliers["rods"]) * length
    np.testing.assert_allclose(force, -SPAN["g"] * np.arange(count, 0, -1), rtol=1e-11)


@pytest.mark.slow
def test_equilibria_have_derivatives() -> None:
    """A mass on two rods of 1 m hangs in the middle, sqrt(1 - d^2 / 4) below the supports."""
    single = jm.System(_hanging, [jm.Holonomic(_rods, "rods")], coordinates=("x", "y"))

    def place(d: Any) -> Any:
        return equilibrium(single, [0.5, -0.9], {**SPAN, "d": d}).q

    spans = jnp.array([0.8, 1.2])
    depths = jnp.sqrt(1 - spans**2 / 4)
    values, slopes = jax.vmap(lambda d: jax.jvp(place, (d,), (1.0,)))(spans)
    np.testing.assert_allclose(values, jnp.stack([spans / 2, -depths], axis=1), atol=1e-12)
    of_depths = spans / (4 * depths)
    np.testing.assert_allclose(slopes, jnp.stack([0 * spans + 0.5, of_depths], axis=1), atol=1e-10)


def _hoop(q: Any, v: Any, t: Any, p: Any) -> Any:
    return (v[0] ** 2 + (v[1] * jnp.sin(q[0])) ** 2) / 2 + p["g"] * jnp.cos(q[0])


BEAD = jm.System(_hoop, coordinates=("angle", "turn"))


@pytest.mark.slow
def test_a_bead_on_a_turning_hoop() -> None:
    """cos(angle) = g / (R w^2); about it w sqrt(1 + 3 cos^2) where the hoop turns freely."""
    params, guess = {"g": 9.81}, np.array([0.9, 0.0])

    def angle(rate: Any) -> Any:
        return equilibrium(BEAD, guess, params, v={"turn": rate}).q[0]

    for rate in (3.5, 5.0):
        np.testing.assert_allclose(jnp.cos(angle(rate)), 9.81 / rate**2, rtol=1e-12)
    slope = jax.grad(angle)(5.0)
    np.testing.assert_allclose(slope, 2 * 9.81 / 5.0**3 / np.sin(angle(5.0)), rtol=1e-9)
    steady = equilibrium(BEAD, guess, params, v={"turn": 5.0})
    swinging = jm.analysis.modes(jm.analysis.linearize(BEAD, steady.q, steady.v, params))
    expected = 5.0 * np.sqrt(1 + 3 * np.cos(steady.q[0]) ** 2) / (2 * np.pi)
    np.testing.assert_allclose(swinging.frequencies, [0, 0, expected, expected], atol=1e-10)


def test_held_coordinates_have_reactions() -> None:
    """A pendulum held aside: the force is m g tan(angle), and no degree of freedom is removed."""
    m, g, l = (PENDULUM.params[k] for k in "mgl")  # noqa: E741
    found = equilibrium(PENDULUM.system, [1.2, -1.0], PENDULUM.params, fixed=["x"])
    tangent = 1.2 / np.sqrt(l**2 - 1.2**2)
    np.testing.assert_allclose(found.reactions["fixed x"], [m * g * tangent, 0.0], rtol=1e-10)
    np.testing.assert_allclose(found.reactions["rod"], [-m * g * tangent, m * g], rtol=1e-10)
    assert int(found.stability) == jm.analysis.Stability.STABLE
    with pytest.raises(ValueError, match=r"'rod' is missed by .*; release x"):
        equilibrium(PENDULUM.system, [3.0, -1.0], PENDULUM.params, fixed=["x"])


@pytest.mark.slow
def test_redundant_constraints_and_a_follower_force() -> None:
    """A load along the rod does no work on it; half the weight across it tilts it by asin(1/2)."""
    for system in (PENDULUM.system, REDUNDANT.system):
        follower = jm.System(
            system.lagrangian,
            system.constraints,
            force=lambda q, v, t, p: p["m"] * p["g"] / 2 * jnp.stack([-q[1], q[0]]) / p["l"],
            coordinates=system.coordinates,
        )
        found = equilibrium(follower, [0.3, -1.8], PENDULUM.params)
        np.testing.assert_allclose(found.q, [1.0, -np.sqrt(3)], rtol=1e-12)
        lin = found.linearization
        assert lin.positions == 1


@pytest.mark.slow
def test_a_singular_mass_matrix_and_a_free_direction() -> None:
    """A hanging body with a quaternion is free to turn about the vertical."""

    def hanging(q: Any, v: Any, t: Any, p: Any) -> Any:
        w = 2 * (q[0] * v[1:] - v[0] * q[1:] - jnp.cross(q[1:], v[1:]))
        return w @ w / 2 + 3.0 * (q[0] ** 2 - q[1] ** 2 - q[2] ** 2 + q[3] ** 2)

    unit = jm.Holonomic(lambda q, t, p: (q @ q - 1) / 2, "unit")
    body = jm.System(hanging, [unit], coordinates=("a", "b", "c", "d"))
    found = equilibrium(body, [0.8, 0.3, -0.2, 0.4])
    np.testing.assert_allclose(found.q[1:3], 0.0, atol=1e-12)
    assert (int(found.index), int(found.assessment.zeros)) == (0, 2)
    frequencies = jm.analysis.modes(found.linearization).frequencies
    np.testing.assert_allclose(frequencies[2:], np.sqrt(3.0) / (2 * np.pi), rtol=1e-10)
    batch = jax.vmap(lambda q: equilibrium(body, q))(jnp.array([[0.8, 0.3, -0.2, 0.4]] * 2))
    np.testing.assert_array_equal(batch.status, 0)
    np.testing.assert_allclose(batch.q[0], found.q, atol=1e-12)


def test_a_missing_equilibrium_is_reported() -> None:
    falling = jm.System(lambda q, v, t, p: v @ v / 2 + q[0], coordinates=("x",))
    with pytest.raises(ValueError, match=r"No equilibrium was found: .* 1 of the forces"):
        equilibrium(falling, [0.0])
    with pytest.raises(ValueError, match="holds 'y'; the coordinates are x"):
        equilibrium(falling, [0.0], fixed=["y"])
    with pytest.raises(TypeError, match="sequence of names"):
        equilibrium(falling, [0.0], fixed="x")


def shaken(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A pendulum whose support is shaken along the vertical."""
    return v[0] ** 2 / 2 + (9.81 - 0.1 * 30.0**2 * jnp.cos(30.0 * t)) * jnp.cos(q[0])


@pytest.mark.slow
def test_stability_is_unknown_if_the_equations_change_with_time() -> None:
    rod = jm.models.bead_on_rod()
    pendulum = jm.System(shaken, coordinates=("angle",))
    for system, q, params in ((rod.system, [0.0, 0.0, 0.0], rod.params), (pendulum, [0.0], None)):
        with pytest.warns(UserWarning, match="change with time"):
            found = jm.analysis.equilibrium(system, q, params, t=0.02)
        assert int(found.stability) == jm.analysis.Stability.UNKNOWN
        with pytest.raises(ValueError, match="change with time"):
            jm.analysis.linearize(system, found.q, found.v, params, t=0.02)
        jm.analysis.linearize(system, found.q, found.v, params, t=0.02, steady=False)
    batch = jax.vmap(lambda t: jm.analysis.equilibrium(pendulum, [0.0], t=t).stability)(jnp.ones(2))
    assert batch.tolist() == [jm.analysis.Stability.UNKNOWN] * 2


@pytest.mark.slow
def test_known_numbers_give_the_result_of_a_program() -> None:
    """Known numbers take another way: functions that are compiled, with numpy around them."""
    model = jm.models.pendulum()
    known = equilibrium(model.system, [0.4, -0.8], model.params)
    setup, guess, v, theta = prepared(
        model.system, np.array([0.4, -0.8]), model.params, 0.0, (), None
    )
    found = jax.jit(lambda q: solve(setup, q, v, theta))(guess)
    np.testing.assert_allclose(known.q, found.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(known.multipliers["rod"], found.multipliers["rod"], rtol=1e-10)
    assert int(found.status) == EquilibriumStatus.FOUND


@pytest.mark.slow
def test_the_code_of_an_arm_at_rest_is_that_of_its_weights() -> None:
    """Products with velocities that are zero are not computed."""
    links = [jp.spatial_body(f"b{k}", mass=1.0, inertia=(0.02, 0.03, 0.04)) for k in range(3)]
    axes = [(0, 0, 1), (0, 1, 0)]
    joints = [
        jp.revolute(
            f"j{k}", links[k - 1] if k else jp.ground, (0, 0, -0.25 if k else 0), link,
            (0, 0, 0.25), axis=axes[k % 2],
        )
        for k, link in enumerate(links)
    ]  # fmt: skip
    arm = jp.Mechanism(links, joints, [jp.gravity()]).system
    setup, q, v, theta = prepared(arm, np.full(3, 0.1), {}, 0.0, (), None)
    given, start = problem(setup, q, v, theta)
    closed = jax.make_jaxpr(given.equations)(start, theta)
    with finite_arguments(True):
        finite = function_kernel(closed)
    assert 5 * finite.operations < function_kernel(closed).operations


def _stiffening(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -jnp.sinh(1e3 * (q - p)) - 0.1 * v


@pytest.mark.slow
def test_forces_are_measured_where_they_balance() -> None:
    """At the guess the force is 1e43; relative to that, the force at x = p + 0.26 mm is nothing."""
    bead = jm.System(lambda q, v, t, p: v @ v / 2, force=_stiffening, coordinates=("x",))
    assert abs(float(equilibrium(bead, [0.1], 0.0).q[0])) < 1e-12
    found, slope = jax.jit(jax.value_and_grad(lambda p: equilibrium(bead, [0.1], p).q[0]))(1e-3)
    np.testing.assert_allclose((found, slope), (1e-3, 1.0), rtol=1e-9)
    falling = jm.System(lambda q, v, t, p: v @ v / 2 + jnp.exp(-q[0]), coordinates=("x",))
    with pytest.raises(ValueError, match="not in balance"):  # though the force becomes 1e-40
        equilibrium(falling, [0.0])


def _tendon(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.sinh(jnp.exp(200 * (q[0] - v[1])) - 1)  # overflows at most states


@pytest.mark.slow
def test_a_state_whose_rate_overflows_elsewhere_is_found_from_a_guess_by_name() -> None:
    muscle = jm.System(
        lambda q, v, t, p: v[0] ** 2 / 2 - (q[0] - 1) ** 2 / 2,
        force=lambda q, v, t, p: jnp.stack([-0.1 * v[0]]),
        coordinates=("x",), states=("fibre",), rates=_tendon,
    )  # fmt: skip
    found = equilibrium(muscle, [0.99, 0.0], v={"fibre": 0.99})
    np.testing.assert_allclose((found.q[0], found.v[1]), 1.0, atol=1e-12)
    with pytest.raises(ValueError, match="holds 'tendon'; the coordinates are x, fibre"):
        equilibrium(muscle, [1.0, 0.0], v={"tendon": 1.0})


def _led(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A bead on a hoop of radius 1 that turns at the rate w, in the frame of the hoop."""
    return (v[0] ** 2 + (p["w"] * jnp.sin(q[0])) ** 2) / 2 + 9.81 * jnp.cos(q[0])


LED = jm.System(_led, coordinates=("angle",))


def _column(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Two bars on hinges with springs, and the masses 2 and 1 at their ends."""
    motion = 3 * v[0] ** 2 + 2 * v[0] * v[1] * jnp.cos(q[0] - q[1]) + v[1] ** 2
    return motion / 2 - (q[0] ** 2 + (q[1] - q[0]) ** 2) / 2


def _follower(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A load P along the upper bar."""
    return jnp.stack([p["P"] * jnp.sin(q[0] - q[1]), 0.0])


COLUMN = jm.System(_column, force=_follower, coordinates=("lower", "upper"))


def grows(system: jm.System, size: int, params: Any) -> Any:
    """Whether a mode about zero grows, for each of the parameters."""

    def growth(p: Any) -> Any:
        return jm.analysis.modes(
            jm.analysis.linearize(system, jnp.zeros(size), jnp.zeros(size), p)
        ).growth

    return np.asarray(jax.vmap(growth)(params)) > 1e-7


@pytest.mark.slow
def test_a_follower_load_causes_flutter() -> None:
    """Ziegler's column of two bars: P l / k = 7/2 - sqrt(2); its stiffness is never singular."""
    loads = 3.5 - np.sqrt(2) + np.array([-1e-4, 1e-4])
    assert grows(COLUMN, 2, {"P": loads}).tolist() == [False, True]


@pytest.mark.slow
def test_equilibria_have_second_derivatives() -> None:
    """The second derivative of cos(angle) = g / w^2 with respect to w."""

    def angle(w: Any) -> Any:
        return jm.analysis.equilibrium(LED, jnp.array([0.9]), {"w": w}).q[0]

    w = 5.0
    cos = 9.81 / w**2
    sin, slope = np.sqrt(1 - cos**2), 2 * 9.81 / w**3
    np.testing.assert_allclose(jax.grad(angle)(w), slope / sin, rtol=1e-10)
    second = -3 * slope / w / sin - slope * cos * slope / sin**3
    np.testing.assert_allclose(jax.jit(jax.grad(jax.grad(angle)))(w), second, rtol=1e-9)


@pytest.mark.slow
def test_damping_inside_a_shaft_makes_it_unstable_at_a_known_speed() -> None:
    """Hopf: beyond the natural frequency times 1 + outer over inner damping."""

    def rotor(q: Any, v: Any, t: Any, p: Any) -> Any:
        turning = p["w"] * (q[0] * v[1] - q[1] * v[0]) + p["w"] ** 2 * q @ q / 2
        return v @ v / 2 + turning - 2 * q @ q

    def loads(q: Any, v: Any, t: Any, p: Any) -> Any:
        return -0.3 * v - 0.1 * p["w"] * jnp.stack([-q[1], q[0]])

    shaft = jm.System(rotor, force=loads, coordinates=("x", "y"))

    rates = 2.0 * (1 + 0.1 / 0.2) + np.array([-1e-4, 1e-4])
    assert grows(shaft, 2, {"w": rates}).tolist() == [False, True]
