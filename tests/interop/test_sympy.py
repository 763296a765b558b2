"""Systems from sympy's LagrangesMethod and KanesMethod, against sympy's own equations."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from sympy.physics import mechanics as me

import jaxmech as jm
from jaxmech.interop.sympy import from_kane, from_lagrange

T = me.dynamicsymbols._t
RNG = np.random.default_rng(7)


def values(system: jm.System, params: dict[str, float]) -> tuple[Any, Any, dict[Any, float]]:
    """A random state, and everything that is known in it, for sympy."""
    q, v = RNG.normal(size=(2, system.n))
    return q, v, {sp.Symbol(name): x for name, x in params.items()}


def numbers(matrix: Any, *known: dict[Any, float]) -> np.ndarray:
    """A matrix with numbers for derivatives first, then for functions and symbols."""
    for replaced in known:
        matrix = matrix.xreplace(replaced)
    return np.array(matrix.evalf(), float)


def double_pendulum(*, driven: bool = True) -> tuple[me.LagrangesMethod, dict[str, float]]:
    a, b, force = me.dynamicsymbols("a b F")
    m, length, g, c = sp.symbols("m l g c")
    N = me.ReferenceFrame("N")
    origin = me.Point("O")
    origin.set_vel(N, 0)
    first = origin.locatenew("P", length * (sp.sin(a) * N.x - sp.cos(a) * N.y))
    second = first.locatenew("R", length * (sp.sin(b) * N.x - sp.cos(b) * N.y))
    for point in (first, second):
        point.set_vel(N, point.pos_from(origin).dt(N))
    bobs = [me.Particle("p", first, m), me.Particle("r", second, 2 * m)]
    for bob in bobs:
        bob.potential_energy = bob.mass * g * bob.point.pos_from(origin).dot(N.y)
    L = me.Lagrangian(N, *bobs)
    turning = me.ReferenceFrame("A")
    turning.orient_axis(N, a, N.z)
    loads = [(second, force * N.x), (turning, -c * a.diff(T) * N.z)]
    method = me.LagrangesMethod(L, [a, b], forcelist=loads if driven else None, frame=N)
    return method, {"m": 1.3, "l": 0.7, "g": 9.81, "c": 0.2, "F": 1.7}


def test_lagrange_with_loads() -> None:
    method, params = double_pendulum()
    system = from_lagrange(method)
    assert system.coordinates == ("a", "b")
    q, v, known = values(system, params)
    eom = system.equations(q, v, 0.0, params)
    method.form_lagranges_equations()
    rates = dict(zip(method.q.diff(T), v, strict=True))
    at = {**dict(zip(method.q, q, strict=True)), me.dynamicsymbols("F"): params["F"], **known}
    np.testing.assert_allclose(eom.M, numbers(method.mass_matrix, rates, at), rtol=1e-12)
    np.testing.assert_allclose(eom.Q, numbers(method.forcing, rates, at)[:, 0], rtol=1e-12)
    with pytest.raises(ValueError, match=r"the parameter 'F'|'F'"):
        system.equations(q, v, 0.0, {name: params[name] for name in "mlgc"})


def test_lagrange_without_loads_conserves_its_energy() -> None:
    method, params = double_pendulum(driven=False)
    system = from_lagrange(method)
    assert system.force is None
    sol = jm.simulate(
        system, [0.5, 1.0], [0.0, 1.0], jnp.linspace(0.0, 0.2, 3), params,
        steps=jm.FixedSteps(per_save=50),
    )  # fmt: skip
    assert sol.energy_drift < 1e-8


def test_lagrange_with_both_kinds_of_constraints() -> None:
    x, y, angle = me.dynamicsymbols("x y angle")
    m, J, R, g = sp.symbols("m J R g")
    L = m * (x.diff(T) ** 2 + y.diff(T) ** 2) / 2 + J * angle.diff(T) ** 2 / 2 - m * g * y
    method = me.LagrangesMethod(
        L,
        [x, y, angle],
        hol_coneqs=[x**2 + y**2 - R**2 * (1 + sp.sin(T) / 5)],
        nonhol_coneqs=[x.diff(T) * sp.sin(angle) - y.diff(T) * sp.cos(angle)],
    )
    system, params = from_lagrange(method), {"m": 1.2, "J": 0.3, "R": 0.9, "g": 9.81}
    assert [c.name for c in system.constraints] == ["holonomic1", "nonholonomic1"]
    q, v, known = values(system, params)
    qdd = jm.acceleration(system, q, v, 0.4, params).qdd
    method.form_lagranges_equations()
    rates = dict(zip(method.q.diff(T), v, strict=True))
    at = {**dict(zip(method.q, q, strict=True)), **known, T: 0.4}
    full = numbers(method.mass_matrix_full, rates, at)
    expected = np.linalg.solve(full, numbers(method.forcing_full, rates, at)[:, 0])
    np.testing.assert_allclose(qdd, expected[3:6], rtol=1e-10)


def body_in_space() -> tuple[me.KanesMethod, dict[str, float]]:
    """A body on a pivot, with its angular velocity along its own axes as speeds."""
    q, u = me.dynamicsymbols("q1:4"), me.dynamicsymbols("u1:4")
    m, length, g, A, B, C, torque = sp.symbols("m l g A B C torque")
    N, F = me.ReferenceFrame("N"), me.ReferenceFrame("F")
    F.orient_body_fixed(N, q, "ZXZ")
    spin = F.ang_vel_in(N)
    kinematic = [u[k] - spin.dot(axis) for k, axis in enumerate((F.x, F.y, F.z))]
    F.set_ang_vel(N, u[0] * F.x + u[1] * F.y + u[2] * F.z)
    origin = me.Point("O")
    origin.set_vel(N, 0)
    center = origin.locatenew("G", length * F.z)
    center.v2pt_theory(origin, N, F)
    top = me.RigidBody("top", center, F, m, (me.inertia(F, A, B, C), center))
    kane = me.KanesMethod(N, list(q), list(u), kinematic)
    kane.kanes_equations([top], [(center, -m * g * N.z), (F, torque * F.z)])
    return kane, {"m": 1.1, "l": 0.4, "g": 9.81, "A": 0.3, "B": 0.2, "C": 0.1, "torque": 0.7}


def test_kane_with_speeds_that_are_no_derivatives() -> None:
    kane, params = body_in_space()
    system = from_kane(kane)
    q, v, known = values(system, params)
    q = np.array([0.3, 0.9, -0.4])
    qdd = jm.acceleration(system, q, v, 0.0, params).qdd
    np.testing.assert_allclose(qdd, by_sympy(kane, q, v, known), rtol=1e-10)


def by_sympy(kane: me.KanesMethod, q: Any, v: Any, known: dict[Any, float]) -> np.ndarray:
    """The accelerations q'' of a KanesMethod, from its u' and the rates of its q'."""
    at = {**dict(zip(kane.q, q, strict=True)), **known}
    rates = kane.kindiffdict()
    of_u = sp.Matrix([rates[x] for x in kane.q.diff(T)])
    Y = numbers(of_u.jacobian(kane.u), at)
    u = np.linalg.solve(Y, v - numbers(of_u.xreplace(dict.fromkeys(kane.u, 0)), at)[:, 0])
    at |= dict(zip(kane.u, u, strict=True))
    udot = np.linalg.solve(numbers(kane.mass_matrix, at), numbers(kane.forcing, at)[:, 0])
    moving = dict(zip([*kane.u.diff(T), *kane.q.diff(T)], [*udot, *v], strict=True))
    return numbers(of_u.diff(T), moving, at)[:, 0]


def test_kane_with_dependent_speeds() -> None:
    x, y, angle, u1, u2, u3 = me.dynamicsymbols("x y angle u1 u2 u3")
    m, J, length, push = sp.symbols("m J l push")
    N, F = me.ReferenceFrame("N"), me.ReferenceFrame("F")
    F.orient_axis(N, angle, N.z)
    F.set_ang_vel(N, u3 * N.z)
    edge = me.Point("E")
    edge.set_vel(N, u1 * N.x + u2 * N.y)
    center = edge.locatenew("G", length * F.x)
    center.v2pt_theory(edge, N, F)
    sleigh = me.RigidBody("sleigh", center, F, m, (me.inertia(F, 0, 0, J), center))
    kane = me.KanesMethod(
        N, [x, y, angle], [u1, u3], [x.diff(T) - u1, y.diff(T) - u2, angle.diff(T) - u3],
        u_dependent=[u2], velocity_constraints=[-u1 * sp.sin(angle) + u2 * sp.cos(angle)],
    )  # fmt: skip
    kane.kanes_equations([sleigh], [(center, push * F.x)])
    system, params = from_kane(kane), {"m": 1.4, "J": 0.3, "l": 0.5, "push": 2.0}
    assert [type(c).__name__ for c in system.constraints] == ["Nonholonomic"]
    v = np.array([1.2 * np.cos(0.4), 1.2 * np.sin(0.4), 0.8])  # along the blade
    q = np.array([0.1, 0.2, 0.4])
    known = {sp.Symbol(name): number for name, number in params.items()}
    qdd = jm.acceleration(system, q, v, 0.0, params).qdd
    np.testing.assert_allclose(qdd, by_sympy(kane, q, v, known), rtol=1e-10)
