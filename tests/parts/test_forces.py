"""Forces: their power and their energy, written down by hand for random states."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import parts as jp
from tests.parts.poses import hamilton, load, matrix, pair, plane_matrix

PA, PB, AXIS = (
    np.array([0.3, -0.2, 0.5]),
    np.array([-0.1, 0.4, 0.2]),
    np.array([1.0, -2.0, 2.0]) / 3,
)
T = 0.3


class State:
    """Two bodies at random: frames, velocities and spins computed here, q and v by `guess`."""

    def __init__(self, size: int, forces: Any, params: Any = None) -> None:
        draw = np.random.default_rng(size)
        self.bodies, self.size = pair(size), size
        self.mechanism = jp.Mechanism(self.bodies, forces=forces, params=params or {})
        self.params = dict(self.mechanism.params)
        self.r, self.u = draw.normal(size=(2, 2, size))
        self.w = draw.normal(size=(2, 3)) if size == 3 else draw.normal(size=2)
        e = draw.normal(size=(2, 4))
        self.attitude = e / np.linalg.norm(e, axis=1)[:, None] if size == 3 else e[:, 0]
        self.R = [matrix(e) if size == 3 else plane_matrix(e) for e in self.attitude]
        starts = zip(self.r, self.attitude, self.u, self.w, strict=True)
        self.q, self.v = self.mechanism.guess(
            {name: jp.Start(*start) for name, start in zip("ab", starts, strict=True)}
        )

    def point(self, k: int, local: Any) -> tuple[Any, Any]:
        """The position of a point of body k, and its velocity."""
        arm = self.R[k] @ local[: self.size]
        sweep = (
            self.w[k] * np.array([-arm[1], arm[0]]) if self.size == 2 else np.cross(self.w[k], arm)
        )
        return self.r[k] + arm, self.u[k] + sweep

    def way(self) -> tuple[Any, Any]:
        """The vector from the point on a to the point on b, and its rate."""
        (p, p_rate), (r, r_rate) = self.point(0, PA), self.point(1, PB)
        return r - p, r_rate - p_rate

    def spin(self) -> float:
        """The angular velocity of b relative to a, about the axis on a."""
        if self.size == 2:
            return self.w[1] - self.w[0]
        return (self.w[1] - self.w[0]) @ (self.R[0] @ AXIS)

    def power(self) -> Any:
        return self.mechanism.system.force(self.q, self.v, jnp.asarray(T), self.params) @ self.v

    def energy(self) -> Any:
        """Potential: minus the Lagrangian at rest."""
        still = jnp.zeros_like(self.v)
        return -self.mechanism.system.lagrangian(self.q, still, jnp.asarray(T), self.params)


both = pytest.mark.parametrize("size", [2, 3])


def ends(size: int) -> tuple[Any, ...]:
    a, b = pair(size)
    return a, PA[:size], b, PB[:size]


def axis_of(size: int) -> Any:
    return None if size == 2 else AXIS


@both
@pytest.mark.parametrize("length", [0, "rest"])
def test_spring_stores_half_the_stiffness_times_the_squared_stretch(size: int, length: Any) -> None:
    spring = jp.spring("S", *ends(size), stiffness="k", length=length)
    state = State(size, [spring], {"k": 30.0, "rest": 0.4})
    d, _ = state.way()
    stretch = np.linalg.norm(d) - (0.4 if length == "rest" else 0.0)
    np.testing.assert_allclose(state.energy(), 15.0 * stretch**2, rtol=1e-13)


def test_spring_without_length_is_smooth_where_its_ends_meet() -> None:
    bob = jp.point_mass("bob", mass=1.0)
    spring = jp.spring("S", jp.ground, (0, 0), bob, (0, 0), stiffness=2.0, length=0)
    system = jp.Mechanism([bob], forces=[spring]).system
    slope = jax.grad(lambda q: system.lagrangian(q, q, 0.0, {}))(jnp.zeros(2))
    np.testing.assert_array_equal(slope, 0.0)


@both
def test_damper_takes_the_square_of_the_speed(size: int) -> None:
    state = State(size, [jp.damper("D", *ends(size), damping="c")], {"c": 3.0})
    d, rate = state.way()
    parting = d @ rate / np.linalg.norm(d)
    np.testing.assert_allclose(state.power(), -3.0 * parting**2, rtol=1e-12)


@both
def test_damper_feels_the_motion_of_its_point_along_a_body(size: int) -> None:
    a, b = pair(size)
    way = np.array([0.7, 0.2, -0.4])
    dampers = [jp.damper("D", a, lambda t, p: p["at"] + way[:size] * t**2, b, PB[:size], damping=3)]
    state = State(size, dampers, {"at": PA[:size]})
    (p, p_rate), (r, r_rate) = state.point(0, PA + way * T**2), state.point(1, PB)
    d, rate = r - p, r_rate - p_rate - state.R[0] @ (2 * T * way[:size])
    force = state.mechanism.system.force(state.q, state.v, jnp.asarray(T), state.params)
    found, _ = load(state.mechanism, "b", state.q, force)
    np.testing.assert_allclose(found, -3 * d * (d @ rate) / (d @ d), rtol=1e-12)


@both
def test_torque_does_work_on_the_relative_spin(size: int) -> None:
    a, b = pair(size)
    motor = jp.torque("M", a, b, lambda t, p: p["peak"] * t, axis=axis_of(size))
    grease = jp.torsion_damper("G", a, b, damping=0.7, axis=axis_of(size))
    state = State(size, [motor, grease], {"peak": 5.0})
    wanted = 5.0 * T * state.spin() - 0.7 * state.spin() ** 2
    np.testing.assert_allclose(state.power(), wanted, rtol=1e-12)


@both
def test_forces_on_a_body_from_the_ground_and_by_a_function_add_up(size: int) -> None:
    b = pair(size)[1]
    motor = jp.torque("M", jp.ground, b, 2.0, axis=axis_of(size))
    state = State(size, [motor, lambda q, v, t, p: -0.5 * v])
    spin = state.w[1] if size == 2 else state.w[1] @ AXIS
    wanted = 2.0 * spin - 0.5 * state.v @ state.v
    np.testing.assert_allclose(state.power(), wanted, rtol=1e-12)


def test_torsion_spring_in_the_plane_counts_turns() -> None:
    a, b = pair(2)
    state = State(2, [jp.torsion_spring("S", a, b, stiffness=3.0, rest=0.1)])
    q = state.q.at[5].add(2 * jnp.pi)
    energy = -state.mechanism.system.lagrangian(q, 0 * q, jnp.zeros(()), {})
    turned = q[5] - q[2] - 0.1
    np.testing.assert_allclose(energy, 1.5 * turned**2, rtol=1e-13)


@pytest.mark.parametrize("angle", [-3.0, -0.4, 0.0, 2.5])
def test_torsion_spring_in_space_acts_on_the_angle_in_the_hinge(angle: float) -> None:
    a, b = pair(3)
    spring = jp.torsion_spring("S", a, b, stiffness=3.0, rest=0.1, axis=AXIS)
    mechanism, e = jp.Mechanism([a, b], forces=[spring]), State(3, []).attitude[0]
    turned = hamilton(e, np.asarray(jp.quaternion(AXIS, angle)))
    o = np.zeros(3)
    q, v = mechanism.guess({"a": jp.Start(o, e), "b": jp.Start(o, turned)})
    energy = -mechanism.system.lagrangian(q, v, jnp.zeros(()), {})
    np.testing.assert_allclose(energy, 1.5 * (angle - 0.1) ** 2, rtol=1e-12)


@pytest.mark.parametrize("form", ["numbers", "name", "function", "mixed"])
@both
def test_gravity_acts_in_the_given_direction(size: int, form: str) -> None:
    down = np.array([3.0, 4.0, 0.0])[:size]
    given = {"numbers": down, "name": "down", "function": lambda t, p: p["down"]}
    mixed = (lambda t, p: p["down"][0], *down[1:])
    params = {"g": 2.0, "down": down}
    state = State(size, [jp.gravity("g", down=given.get(form, mixed))], params)
    drop = 1.3 * 2.0 * state.r @ (down / 5)
    np.testing.assert_allclose(state.energy(), -drop.sum(), rtol=1e-13)


def test_a_mechanism_of_potentials_has_no_force_and_so_conserves_energy() -> None:
    a, b = pair(2)
    spring = jp.torsion_spring("S", a, b, stiffness=3.0)
    assert jp.Mechanism([a, b], forces=[spring, jp.gravity()]).system.force is None
    damper = jp.torsion_damper("D", a, b, damping=3.0)
    assert jp.Mechanism([a, b], forces=[spring, damper]).system.force is not None


@both
def test_power_of_a_law(size: int) -> None:
    def law(length: Any, rate: Any, t: Any, p: Any) -> Any:
        return p["k"] * (length - 1.0) ** 3 - rate + t

    state = State(size, [jp.force_law("law", *ends(size), law)], {"k": 2.0})
    d, rate = state.way()
    length = np.linalg.norm(d)
    slide = d @ rate / length
    force = 2.0 * (length - 1.0) ** 3 - slide + 0.3
    np.testing.assert_allclose(state.power(), force * slide, rtol=1e-12)


@both
@pytest.mark.parametrize("follows", [False, True])
def test_power_of_a_force_with_a_torque(size: int, follows: bool) -> None:
    _, b = State(size, []).bodies
    force, torque = np.array([1.0, -2.0, 0.5])[:size], np.array([0.3, 0.7, -0.4])
    load = jp.applied_force(
        "push", b, PB[:size], tuple(force), follows=follows,
        torque=float(torque[0]) if size == 2 else tuple(torque),
    )  # fmt: skip
    state = State(size, [load])
    R = state.R[1] if follows else np.eye(size)
    turn = torque[0] * state.w[1] if size == 2 else (R @ torque) @ state.w[1]
    expected = (R @ force) @ state.point(1, PB)[1] + turn
    np.testing.assert_allclose(state.power(), expected, rtol=1e-12)
