"""Systems from sympy's LagrangesMethod, against sympy's own equations."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import sympy as sp
from sympy.physics import mechanics as me

import jaxmech as jm
from jaxmech.interop.sympy import from_lagrange

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
