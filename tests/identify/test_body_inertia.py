"""All numbers of a body fitted together: those of some body, whatever the fit does."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import Fit, Recording, fit
from jaxmech.identify.parameters import BodyInertia, bodies_of, parameters
from jaxmech.interop.mujoco import from_mjcf
from jaxmech.parts import Mechanism, gravity, ground, planar_body, revolute, spatial_body

WHOLE = BodyInertia(3, 3, (3, 3))


def of_points(seed: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and central inertia of point masses, summed one by one."""
    rng = np.random.default_rng(seed)
    masses, places = rng.uniform(0.1, 1.0, 12), rng.normal(size=(12, 3)) * [1.0, 0.3, 0.1]
    center = masses @ places / masses.sum()
    arms = places - center
    pairs = zip(masses, arms, strict=True)
    return masses.sum(), center, sum(m * (a @ a * np.eye(3) - np.outer(a, a)) for m, a in pairs)


def packed(mass: Any, center: Any, inertia: Any) -> np.ndarray:
    return np.concatenate([[mass], center, np.ravel(inertia)])


def pseudo_inertia(mass: Any, center: Any, inertia: Any) -> np.ndarray:
    """[[S, h], [h^T, m]] about the origin of the body's axes, from the integrals of its parts."""
    second = np.trace(inertia) / 2 * np.eye(3) - inertia + mass * np.outer(center, center)
    h = mass * np.asarray(center)
    return np.block([[second, h[:, None]], [h[None], np.reshape(mass, (1, 1))]])


def pseudo_inertia_of(numbers: np.ndarray) -> np.ndarray:
    return pseudo_inertia(numbers[0], numbers[1:4], numbers[4:].reshape(3, 3))


_value = jax.jit(lambda way, z, start: way.value(z, start), static_argnums=0)


def moved(way: BodyInertia, z: Any, start: Any) -> np.ndarray:
    """The numbers of a body whose unknowns have been moved by z from those at the start."""
    start = np.asarray(start)
    return np.asarray(_value(way, jnp.asarray(way.first(start) + z), jnp.asarray(start)))


def log_cholesky(J: np.ndarray) -> dict[str, Any]:
    """The numbers of Rucker and Wensing of U in J = U U^T, which is unique."""
    U = np.linalg.cholesky(J[::-1, ::-1])[::-1, ::-1]
    alpha = np.log(U[3, 3])
    V = U / U[3, 3]
    return {"alpha": alpha, "d": np.log(np.diag(V)[:3]), "t": V[:3, 3], "V": V[:3, :3]}


def test_the_numbers_are_those_of_the_log_cholesky_form() -> None:
    """The start gives its own V0, t0 and mass; z moves them as the formulas say."""
    start = packed(*of_points(0))
    before = log_cholesky(pseudo_inertia_of(start))
    rng = np.random.default_rng(1)
    for z in 0.7 * rng.normal(size=(5, 10)):
        after = log_cholesky(pseudo_inertia_of(moved(WHOLE, z, start)))
        radius = np.sqrt(np.trace(before["V"] @ before["V"].T))
        change = np.diag(np.exp(z[4:7]))
        change[np.triu_indices(3, 1)] = z[7:]
        np.testing.assert_allclose(after["alpha"], before["alpha"] + z[0])
        np.testing.assert_allclose(after["t"], before["t"] + radius * z[1:4])
        np.testing.assert_allclose(after["V"], before["V"] @ change, atol=1e-12)
        np.testing.assert_allclose(after["d"], before["d"] + z[4:7])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_whatever_the_free_numbers_are_a_body_has_them(dtype: Any) -> None:
    """J is definite, and the principal moments satisfy the triangle inequalities."""
    way = BodyInertia(3, 3, (3, 3))
    start = jnp.asarray(packed(*of_points(3)), dtype)
    assert not way.excludes(np.asarray(start))
    z = jnp.asarray(np.random.default_rng(0).normal(size=(50, 10)), dtype)
    z = z.at[0].set(0.0)

    def summed(z: Any) -> Any:
        value = way.value(z + jnp.asarray(way.first(np.asarray(start)), dtype), start)
        return value.sum(), value

    with jax.enable_x64(dtype == np.float64):
        slope, values = jax.jit(jax.vmap(jax.grad(summed, has_aux=True)))(z)
    eps = np.finfo(dtype).eps
    assert values.dtype == dtype
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(values[0], start, rtol=50 * eps, atol=10 * eps)
    for numbers in np.asarray(values, float):
        m, c, J_C = numbers[0], numbers[1:4], numbers[4:].reshape(3, 3)
        moments = np.linalg.eigvalsh(J_C)
        slack = 500 * eps * (moments[2] + m * c @ c)
        assert m > 0
        assert moments[0] > -slack
        assert moments[2] <= moments[0] + moments[1] + slack
        if dtype == np.float64:
            J = pseudo_inertia(m, c, J_C)
            assert np.linalg.eigvalsh(J).min() > 0
            np.testing.assert_allclose(
                np.linalg.det(J), m * np.linalg.det(np.trace(J_C) / 2 * np.eye(3) - J_C), rtol=1e-6
            )


def test_bodies_in_the_plane_and_with_principal_moments() -> None:
    z = np.array([0.2, 0.5, -0.5, 0.3])
    value = moved(BodyInertia(2, 2, ()), z, [2.0, 0.1, 0.2, 0.5])
    np.testing.assert_allclose(value[[0, 3]], [2 * np.exp(0.4), 0.5 * np.exp(1.0)])
    np.testing.assert_allclose(value[1:3], np.array([0.1, 0.2]) + 0.5 * np.array([0.5, -0.5]))

    moments = np.array([1.0, 1.5, 2.0])
    way, start = BodyInertia(3, 0, (3,)), np.concatenate([[2.0], moments])
    assert way.entries(()) == ((0,), (1,), (2,), (3,))
    z = np.array([0.1, 0.2, -0.1, 0.3])
    second = (moments.sum() / 2 - moments) * np.exp(2 * (0.1 + z[1:]))
    value = moved(way, z, start)
    np.testing.assert_allclose(value, [2 * np.exp(0.2), *(second.sum() - second)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"m": -1.0}, "'fore', but its mass -1 is not positive; correct the start"),
        ({"J": np.diag([1.0, 2.0, 4.0])}, r"C < A \+ B: 4 is not below 1 \+ 2"),
        ({"J": np.diag([1.0, 2.0, 3.0])}, r"C < A \+ B: 3 is not below 1 \+ 2"),
        ({"J": np.diag([-0.1, 2.0, 2.0])}, "2 is not below -0.1"),
        ({"J": np.eye(3) + np.eye(3, k=1)}, "is not symmetric"),
    ],
)
def test_starts_that_no_body_has_are_refused(changed: dict[str, Any], message: str) -> None:
    body = spatial_body("fore", mass="m", inertia="J", center="c")
    params = {"m": 1.0, "J": np.eye(3), "c": np.zeros(3)}
    system = Mechanism([body], params=params).system
    with pytest.raises(ValueError, match=message):
        parameters({**params, **changed}, free=["fore"], bodies=bodies_of(system))


def test_bodies_are_named_by_their_numbers() -> None:
    one = planar_body("one", mass="m1", inertia="I1", center=("x", 0.0))
    two = planar_body("two", mass="m2", inertia=lambda t, p: p["m2"])
    three = planar_body("three", mass="m1", inertia="I1")
    flat = spatial_body("flat", mass="m1", inertia="I3", static_moment="S")  # not its centre
    params = {"m1": 1.0, "I1": 0.5, "x": 0.3, "m2": 2.0, "I3": np.ones(3), "S": np.ones(3) / 9}
    bodies = bodies_of(Mechanism([one, two, three], params=params).system)
    bodies |= bodies_of(Mechanism([flat], params=params).system)

    def names(*free: str, **options: Any) -> tuple[str, ...]:
        return parameters(params, free=free, bodies=bodies, **options).layout.names

    assert names("one") == ("m1", "x", "I1")
    assert names("one", "m2") == ("m1", "x", "I1", "m2")
    assert parameters({**params, "one": 3.0}, free=["one"], bodies=bodies).layout.names == ("one",)
    with pytest.raises(ValueError, match=r"'ony' is not .* fitted; did you mean `one`"):
        names("ony")
    with pytest.raises(ValueError, match="the body 'two', whose inertia is no parameter by name"):
        names("two")
    with pytest.raises(ValueError, match="whose parameter 'm1' has more than one place"):
        names("one", "three")
    with pytest.raises(ValueError, match="must not have 'm1', which is fitted with the other"):
        names("one", bounds={"m1": (0, 2)})
    with pytest.raises(ValueError, match="'flat', whose center is no parameter by name"):
        names("flat")


ARM = """<mujoco><worldbody>
<body name="upper"><joint name="shoulder" axis="0 0 1" damping="0.05"/>
 <inertial pos="0.1 0 0" mass="2" fullinertia="0.01 0.02 0.02 0 0 0"/>
 <body name="fore" pos="0.3 0 0"><joint name="elbow" axis="0 1 0" damping="0.05"/>
  <inertial pos="0.15 0.01 0.02" mass="1" fullinertia="0.002 0.012 0.012 0.0005 0.0003 0.0002"/>
 </body></body></worldbody>
 <actuator><motor name="shoulder" joint="shoulder"/><motor name="elbow" joint="elbow"/></actuator>
</mujoco>"""
NOISE = 2e-3


def fit_of_the_arm(free: list[str]) -> tuple[Fit, dict[str, Any]]:
    """Its forearm, of which nothing is known, from two motions under known torques."""
    robot = from_mjcf(ARM, params=("mass", "center", "inertia"))
    system, truth = robot.mechanism.system, dict(robot.mechanism.params)
    ts, rng = np.linspace(0.0, 2.0, 41), np.random.default_rng(0)

    def recorded(q0: list[float]) -> Recording:
        torques = {
            f"ctrl.{joint}": jm.Signal(ts[::4], rng.normal(0.0, 0.5, 11), "cubic")
            for joint in ("shoulder", "elbow")
        }
        sol = jm.simulate(system, q0, np.zeros(2), ts, {**truth, **torques}, steps=jm.FixedSteps(4))
        observed = np.asarray(sol.q) + NOISE * rng.normal(size=sol.q.shape)
        return Recording(ts, observed, q0, [0.0, 0.0], 1 / NOISE, inputs=torques)

    start = {**truth, "mass.fore": 1.2, "center.fore": np.array([0.12, 0.0, 0.0])}
    recordings = [recorded([0.0, 0.3]), recorded([0.5, 1.2])]
    found = fit(
        system, recordings, start, free=free, steps=jm.FixedSteps(4), initial_states="fixed"
    )
    return found, truth


def of_forearm(params: Any) -> np.ndarray:
    names = ("mass.fore", "center.fore", "inertia.fore")
    mass, center, inertia = (np.asarray(params[name]) for name in names)
    return pseudo_inertia(mass, center, (inertia + inertia.T) / 2)


@pytest.mark.slow
def test_a_fit_leaves_the_possible_bodies_unless_they_are_named() -> None:
    """Eight combinations are determined; of the bodies that have them, most cannot be."""
    single, _ = fit_of_the_arm(["mass.fore", "center.fore", "inertia.fore"])
    joint, _ = fit_of_the_arm(["fore"])
    assert single.converged
    assert joint.converged
    assert np.linalg.eigvalsh(of_forearm(single.params)).min() < -1e-3
    assert np.linalg.eigvalsh(of_forearm(joint.params)).min() > 0
    assert single.notes == joint.notes == ()
    # both are as good, and the same combinations follow
    np.testing.assert_allclose(
        joint.optimization.history[-1], single.optimization.history[-1], rtol=1e-4
    )
    assert len(joint.names) == 10
    assert not joint.uncertainty.determined.any()
    assert joint.identifiability.rank == 8


def test_errors_of_the_numbers_follow_from_those_of_any_others() -> None:
    """A rod on a known hinge in the plane: the same errors as with each number by itself."""
    rod = planar_body("rod", mass="m", inertia="I", center=("x", 0.0))
    hinge = revolute("hinge", ground, (0, 0), rod, (0, 0))
    motor = jm.parts.joint_force("motor", hinge, lambda q, rate, t, p: 0.5 * jnp.sin(3 * t))
    params = {"m": 1.3, "I": 0.05, "x": 0.3}
    system = Mechanism([rod], [hinge], [gravity(9.81), motor], params).system
    ts, start, steps = np.arange(41) / 20, ([-1.0], [0.0]), jm.FixedSteps(2)
    sol = jm.simulate(system, *start, ts, params, steps=steps)
    noise = 1e-3 * np.random.default_rng(0).normal(size=sol.q.shape)
    one = Recording(ts, sol.q + noise, *start, 1e3)
    prior = {"m": (1.3, 0.1)}
    joint, single = (
        fit(system, one, {**params, "x": 0.25}, free=free, prior=prior, steps=steps)
        for free in (["rod"], ["m", "I", "x"])
    )
    order = [joint.names.index(name) for name in single.names]
    np.testing.assert_allclose(joint.values[order], single.values, rtol=1e-4)
    np.testing.assert_allclose(
        joint.uncertainty.standard_errors[order], single.uncertainty.standard_errors, rtol=1e-3
    )
