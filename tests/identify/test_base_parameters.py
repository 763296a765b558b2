"""Base parameters of mechanisms, by published and hand-counted numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import base_parameters
from jaxmech.interop.mujoco import from_mjcf
from jaxmech.parts import (
    Mechanism,
    gravity,
    ground,
    joint_force,
    planar_body,
    revolute,
    rotor,
    spatial_body,
    spherical,
)

# Of each joint, about z of its body: angle between the axes, distances along x and along z, after
# the convention of Craig, which is that of Khalil too. The RX-90 is that of SYMORO, the Panda that
# of Franka's documentation.
D3, R4 = 0.45, 0.55
RX_90 = ((0, 0, 0), (90, 0, 0), (0, D3, 0), (-90, 0, R4), (90, 0, 0), (-90, 0, 0))
PANDA = (
    (0, 0, 0.333), (-90, 0, 0), (90, 0, 0.316), (90, 0.0825, 0), (-90, -0.0825, 0.384),
    (90, 0, 0), (90, 0.088, 0),
)  # fmt: skip
FURUTA = ((0, 0, 0.2), (-90, 0.3, 0))


def chain(rows: Any) -> Mechanism:
    """A serial arm with gravity along the axis of its base."""
    text, ends = "", ""
    for k, (turn, x, z) in enumerate(rows):
        sine, cosine = np.sin(np.radians(turn)), np.cos(np.radians(turn))
        text += (
            f'<body name="link{k}" pos="{x} {-sine * z} {cosine * z}" euler="{turn} 0 0">'
            f'<joint name="j{k}" axis="0 0 1"/>'
            '<inertial pos="0.01 0.02 0.03" mass="1" fullinertia="3 4 5 0.1 0.2 0.3"/>'
        )
        ends += "</body>"
    robot = from_mjcf(f"<mujoco><worldbody>{text}{ends}</worldbody></mujoco>")
    return robot.mechanism


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        pytest.param(FURUTA, 8, id="Furuta pendulum"),
        pytest.param(PANDA, 43, id="Panda"),
    ],
)
def test_arms_have_the_published_number(rows: Any, count: int) -> None:
    """Of serial arms, by those who have identified them.

    The Furuta pendulum has the axes of the example of SymPyBotics (github.com/cdsousa/SymPyBotics,
    README), with one number of the first body and seven of the second. Panda: Gaz et al., "Dynamic
    identification of the Franka Emika Panda robot with retrieval of feasible parameters", IEEE
    Robotics and Automation Letters 4 (2019), the coefficients without friction in
    github.com/marcocognetti/FrankaEmikaPandaDynModel.
    """
    base = base_parameters(chain(rows))
    assert base.rank == len(base.formulas) == count
    assert base.matrix.shape == (count, 10 * len(rows))


def _by_symoro(names: tuple[str, ...]) -> np.ndarray:
    """The regrouped parameters of the RX-90 without rotors, in the words of RX90_regp.txt."""
    unit = dict(zip(names, np.eye(len(names)), strict=True))

    def of(name: str) -> dict[int, np.ndarray]:
        return {k: unit[f"link{k - 1}.{name}"] for k in range(1, 7)}

    XX, YY, ZZ, XY, XZ, YZ = map(of, ("Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz"))
    MX, MY, MZ, M = map(of, ("mx", "my", "mz", "m"))
    XX[6] = XX[6] - YY[6]
    M[5] = M[5] + M[6]
    XX[5] = XX[5] - YY[5] + YY[6]
    ZZ[5], MY[5] = YY[6] + ZZ[5], MY[5] + MZ[6]
    M[4] = M[4] + M[5]
    XX[4] = XX[4] - YY[4] + YY[5]
    ZZ[4], MY[4] = YY[5] + ZZ[4], MY[4] - MZ[5]
    M[3] = M[3] + M[4]
    behind = R4**2 * M[4] + 2 * R4 * MZ[4] + YY[4]
    XX[3] = behind + XX[3] - YY[3]
    ZZ[3], MY[3] = behind + ZZ[3], M[4] * R4 + MY[3] + MZ[4]
    YY[2] = D3**2 * M[3] + YY[2] + YY[3]
    XX[2] = XX[2] + YY[3] - YY[2]
    XZ[2], ZZ[2] = XZ[2] - D3 * MZ[3], D3**2 * M[3] + ZZ[2]
    MX[2] = D3 * M[3] + MX[2]
    ZZ[1] = YY[2] + ZZ[1]
    groups = (XX, XY, XZ, YZ, ZZ, MX, MY)
    return np.stack([ZZ[1], *(group[k] for k in range(2, 7) for group in groups)])


def test_the_combinations_of_an_industrial_robot() -> None:
    """Those of the closed form of Gautier and Khalil (1990), as SYMORO prints them.

    github.com/symoro/symoro, Robots/RX90/RX90_regp.txt.
    """
    base = base_parameters(chain(RX_90))
    assert base.rank == len(base.formulas) == 36
    ordered, expected = map(_in_order, (base.matrix, _by_symoro(base.names)))
    np.testing.assert_allclose(ordered, expected, atol=1e-9)


def _in_order(matrix: np.ndarray) -> np.ndarray:
    return np.asarray(matrix[np.lexsort(np.round(matrix, 9).T)])


def arm(*forces: Any, center: tuple[float, float] = (0.15, 0.0)) -> Mechanism:
    upper = planar_body("upper", mass=2.0, inertia=0.1, center=(0.2, 0.0))
    fore = planar_body("fore", mass="m", inertia=0.05, center=center)
    shoulder = revolute("shoulder", ground, (0, 0), upper, (0, 0))
    elbow = revolute("elbow", upper, (0.5, 0), fore, (0, 0))
    joints = [shoulder, elbow]
    return Mechanism([upper, fore], joints, [gravity(9.81), *forces], {"m": 1.0})


def test_the_combinations_of_two_links() -> None:
    """The closed form: what the forearm has in common with the end of the upper arm goes there."""
    base = base_parameters(arm(), known="zeros")
    assert base.formulas == ("upper.I + 0.25 fore.m", "upper.mx + 0.5 fore.m", "fore.I", "fore.mx")
    assert base.units == ("kg m^2", "kg m", "kg m^2", "kg m")
    assert base.without_effect == ("upper.m",)
    assert base.known == ("upper.my", "fore.my")
    at_1_kg = [0.1 + 2 * 0.2**2 + 0.25, 2 * 0.2 + 0.5, 0.05 + 0.15**2, 0.15]
    np.testing.assert_allclose(base.values(), at_1_kg, rtol=1e-14)
    slope = jax.jacobian(lambda m: base.values({"m": m}))(1.0)
    np.testing.assert_allclose(slope, [0.25, 0.5, 0.15**2, 0.15], rtol=1e-14)


def test_a_mechanism_is_compiled_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not again for the same mechanism made anew, whatever the numbers of its parameters."""
    first = base_parameters(arm())
    with jax.log_compiles(), caplog.at_level("WARNING"):
        again = base_parameters(arm(), params={"m": 2.0}, seed=1)
    assert "Compiling" not in caplog.text
    assert again.formulas == first.formulas


def test_the_pivot_of_a_pendulum_is_a_reference() -> None:
    """About its hinge a rod has an inertia and a static moment; its mass is in both."""
    rod = planar_body("rod", mass=3.0, inertia=0.25)
    hinge = revolute("hinge", ground, (0, 0), rod, (-0.5, 0))
    base = base_parameters(Mechanism([rod], [hinge], [gravity(9.81)]), known="zeros")
    assert base.formulas == ("rod.I", "rod.mx")
    np.testing.assert_allclose(base.values(), [0.25 + 3 * 0.25, 1.5])
    # about a vertical axis nothing but the inertia counts
    assert base_parameters(Mechanism([rod], [hinge])).formulas == ("rod.I",)


def test_rotors_join_the_inertias() -> None:
    turning = rotor("a", "shoulder.angle", 0.01), rotor("b", "elbow.angle", 0.02)
    base = base_parameters(arm(*turning), known="zeros")
    assert base.formulas == (
        "upper.I + 0.25 fore.m + shoulder.angle.rotor", "upper.mx + 0.5 fore.m", "fore.I",
        "fore.mx", "elbow.angle.rotor",
    )  # fmt: skip


def test_bodies_in_space() -> None:
    body = spatial_body("body", mass=2.0, inertia=(0.1, 0.2, 0.25), center=(0.1, 0.2, 0.3))
    free = Mechanism([body], forces=[gravity(9.81)])
    assert base_parameters(free).rank == 10
    ball = spherical("ball", ground, (0, 0, 0), body, (0, 0, 0))
    for velocities in ("rates", "spins"):
        swinging = Mechanism([body], [ball], [gravity(9.81)], velocities=velocities)
        assert base_parameters(swinging).without_effect == ("body.m",)


def four_bar(crank: float, coupler: float, rocker: float, frame: float) -> Mechanism:
    one = planar_body("crank", mass=1.0, inertia=0.1, center=(0.1, 0.1))
    two = planar_body("coupler", mass=2.0, inertia=0.3, center=(0.5, 0.2))
    three = planar_body("rocker", mass=1.5, inertia=0.2, center=(0.4, 0.1))
    joints = [
        revolute("A", ground, (0, 0), one, (0, 0)),
        revolute("B", one, (crank, 0), two, (0, 0)),
        revolute("D", ground, (frame, 0), three, (0, 0)),
        revolute("C", two, (coupler, 0), three, (rocker, 0)),
    ]
    return Mechanism([one, two, three], joints, [gravity(9.81)])


POSE = [1.2, -0.9, 1.5]  # near one, from which the nearest is found


def test_loops_merge_more() -> None:
    """Mass on the coupler is worth masses at its ends, which count with crank and rocker.

    So 4 parameters of the coupler become 2. In a parallelogram it only moves along a circle, with
    the turn of both cranks.
    """
    bars = four_bar(0.3, 1.0, 0.8, 0.9)
    base = base_parameters(bars, POSE)
    assert base.rank == 8
    assert base.without_effect == ("crank.m", "rocker.m")
    assert "crank.mx - 0.3 coupler.mx + 0.3 coupler.m" in base.formulas

    parallelogram = four_bar(0.5, 1.0, 0.5, 1.0)
    base = base_parameters(parallelogram, [1.0, -1.0, 1.0])
    assert base.formulas == (
        "crank.I + rocker.I + 0.25 coupler.m", "crank.mx + rocker.mx + 0.5 coupler.m",
        "crank.my + rocker.my",
    )  # fmt: skip


def _spatial_arm(params: dict[str, Any]) -> Mechanism:
    def body(name: str) -> Any:
        return spatial_body(name, mass=f"m.{name}", inertia=f"I.{name}", static_moment=f"S.{name}")

    one, two = body("one"), body("two")
    joints = [
        revolute("A", ground, (0, 0, 0), one, (0, 0, 0), axis=(0, 0, 1)),
        revolute("B", one, (0.4, 0, 0.1), two, (0, 0, 0), axis=(0.6, 0.8, 0)),
    ]
    return Mechanism([one, two], joints, [gravity(9.81)], params)


def test_the_equations_depend_on_them_alone() -> None:
    """Changes that leave all combinations as they are leave M and Q as they are, others do not."""
    rng = np.random.default_rng(0)
    params: dict[str, Any] = {}
    for name in ("one", "two"):
        params |= {f"m.{name}": 2.0, f"S.{name}": np.array([0.1, 0.2, -0.1])}
        params[f"I.{name}"] = np.diag([0.5, 0.6, 0.7])
    mechanism = _spatial_arm(params)
    base = base_parameters(mechanism)
    null = np.eye(20) - np.linalg.pinv(base.matrix) @ base.matrix

    def equations(phi: np.ndarray, q: Any, v: Any) -> Any:
        changed = {}
        for name, part in zip(("one", "two"), jnp.split(phi, 2), strict=True):
            x, y, z, xy, xz, yz = part[:6]
            changed[f"I.{name}"] = jnp.array([[x, xy, xz], [xy, y, yz], [xz, yz, z]])
            changed |= {f"S.{name}": part[6:9], f"m.{name}": part[9]}
        eom = mechanism.system.equations(q, v, 0.0, changed)
        return jnp.concatenate([eom.M.ravel(), eom.Q])

    phi = np.asarray(base.inertial())
    states = rng.normal(size=(2, 5, 2))
    change = null @ rng.normal(size=20)
    assert np.linalg.norm(change) > 1
    evaluate = jax.jit(jax.vmap(jax.vmap(equations, (None, 0, 0)), (0, None, None)))
    others = [phi + 0.1 * row for row in np.linalg.pinv(base.matrix).T]
    at_phi, same, *changed = evaluate(np.stack([phi, phi + change, *others]), *states)
    np.testing.assert_allclose(same, at_phi, atol=1e-12)
    assert min(np.abs(one - at_phi).max() for one in changed) > 1e-3


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        base_parameters(arm().system)  # type: ignore[arg-type]
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        base_parameters(arm())
    with pytest.raises(ValueError, match=r"`known` must be .* fore.m, but has 'fore.x'"):
        base_parameters(arm(), known=["fore.x"])
    bars = four_bar(0.3, 1.0, 0.8, 0.9)
    with pytest.raises(ValueError, match=r"`q` must be a pose of the mechanism, which has .* C"):
        base_parameters(bars)
    with pytest.raises(ValueError, match=r"`q` must have shape \(3,\)"):
        base_parameters(bars, [0.0])
    with pytest.raises(ValueError, match="near its constraints"):
        base_parameters(four_bar(0.3, 1.0, 0.8, 9.0), [1.2, -0.9, 1.5])


def _fit_of_a_rod(torque: float) -> Any:
    """A rod of which nothing is known, on a hinge with a motor."""
    rod = planar_body("rod", mass="m", inertia="I", center=("x", "y"))
    hinge = revolute("hinge", ground, (0, 0), rod, (-0.2, 0))
    motor = joint_force("motor", hinge, lambda q, rate, t, p: torque * jnp.sin(3 * t))
    params = {"m": 1.3, "I": 0.05, "x": 0.1, "y": -0.07}
    mechanism = Mechanism([rod], [hinge], [gravity(9.81), motor], params)
    ts, start = np.arange(61) / 20, ([-1.0], [0.0])
    sol = jm.simulate(mechanism.system, *start, ts, params, steps=jm.FixedSteps(4))
    noise = 1e-3 * np.random.default_rng(0).normal(size=sol.q.shape)
    one = jm.Recording(ts, sol.q + noise, *start, 1e3)
    guess = {name: 1.01 * value for name, value in params.items()}
    return jm.fit(mechanism.system, one, guess, steps=jm.FixedSteps(4))


def test_a_fit_prints_those_that_it_determines() -> None:
    """The mass, its centre and an inertia about it are open; what acts about the hinge is not."""
    fit = _fit_of_a_rod(0.5)
    assert len(fit.identifiability.undetermined) == 4
    groups = fit.identifiability.groups
    assert [group.formula for group in groups] == ["rod.I", "rod.mx", "rod.my"]
    truth = [0.05 + 1.3 * (0.3**2 + 0.07**2), 1.3 * 0.3, 1.3 * -0.07]
    for group, true in zip(groups, truth, strict=True):
        determined, error = fit.identifiability.determined(group.gradient)
        assert determined
        assert abs(group.value - true) < 4 * error < 0.02 * abs(true)
        assert f"{group.formula} = {group.value:.5g} +- {error:.2g} {group.unit}" in repr(
            fit.identifiability
        )
    assert fit.identifiability.combinations.missing == 0


@pytest.mark.slow
def test_without_known_forces_only_ratios_are_determined() -> None:
    fit = _fit_of_a_rod(0.0)
    groups = fit.identifiability.groups
    assert [group.formula for group in groups] == ["(rod.mx) / (rod.I)", "(rod.my) / (rod.I)"]
    np.testing.assert_allclose(groups[0].value, 0.39 / 0.17337, rtol=1e-2)
    assert "known" not in groups[0].unit
    assert fit.identifiability.rank == 2


@pytest.mark.parametrize(("params", "count"), [((), 6), (("mass",), 4)])
def test_a_carried_weight_is_known_only_if_the_mass_is(params: Any, count: int) -> None:
    """A carried body, whose support follows its mass, has no static moment about a fixed hinge."""
    body = '<body name="{}" pos="{} 0 0" gravcomp="1"><joint name="{}" axis="0 1 0"/>{}{}</body>'
    inertial = '<inertial mass="1" pos="0.2 0 0" diaginertia="1e-2 2e-2 2e-2"/>'
    fore = body.format("fore", 0.5, "elbow", inertial, "")
    arm = body.format("upper", 0, "shoulder", inertial, fore)
    text = f"<mujoco><worldbody>{arm}</worldbody></mujoco>"
    base = base_parameters(from_mjcf(text, params=params).mechanism)
    assert base.rank == count
    assert ("upper.mx" in base.without_effect) == bool(params)
    assert "upper.Iyy + 0.25 fore.m" in base.formulas
