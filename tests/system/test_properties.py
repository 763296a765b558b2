"""Structural properties of a system, found without actual values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Acceleration, Holonomic, Nonholonomic, System, models
from jaxmech.system import conserves_energy
from jaxmech.system.generic import singular_mass
from tests.small import CASES

NAMES = ("x", "y", "z")
STATE = (jnp.zeros(3), jnp.zeros(3), jnp.zeros(()))


def kinetic(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v


def with_constraint(constraint: Any) -> System:
    return System(kinetic, [constraint], coordinates=NAMES)


CONSERVING = {
    "spring": System(lambda q, v, t, p: 0.5 * v @ v - q @ q, coordinates=NAMES),
    "magnet": System(lambda q, v, t, p: 0.5 * v @ v + q[0] * v[1], coordinates=NAMES),
    "sphere": with_constraint(Holonomic(lambda q, t, p: q @ q - 1)),
    "blade": with_constraint(Nonholonomic(lambda q, v, t, p: v[0] * jnp.sin(q[2]) - v[1])),
    "turning blade": with_constraint(Nonholonomic(lambda q, v, t, p: v[0] * jnp.sin(t) - v[1])),
}
NOT_CONSERVING = {
    "pump": System(lambda q, v, t, p: 0.5 * v @ v - q @ q * t, coordinates=NAMES),
    "drag": System(kinetic, force=lambda q, v, t, p: -v, coordinates=NAMES),
    "growing sphere": with_constraint(Holonomic(lambda q, t, p: q @ q - (1 + t))),
    "set speed": with_constraint(Nonholonomic(lambda q, v, t, p: v @ v - 1)),
    "turntable": with_constraint(Nonholonomic(lambda q, v, t, p: v[0] - q[1])),
    "servo": with_constraint(Acceleration(lambda q, v, a, t, p: a[0])),
}
SINGULAR = {
    "massless": System(lambda q, v, t, p: 0.5 * p * v[:2] @ v[:2], coordinates=NAMES),
    "sum": System(lambda q, v, t, p: 0.5 * (v @ jnp.ones(3)) ** 2 + v[0] ** 2, coordinates=NAMES),
    "turning": System(
        lambda q, v, t, p: (q[0] * v[0] + q[1] * v[1]) ** 2 + v[2] ** 2, coordinates=NAMES
    ),
}


def both(*args: Any) -> tuple[Any, bool]:
    return singular_mass(*args), conserves_energy(*args)


@pytest.mark.parametrize("name", CONSERVING)
def test_conserves_energy(name: str) -> None:
    assert both(CONSERVING[name], *STATE, 1.0) == (False, True)


@pytest.mark.parametrize("name", NOT_CONSERVING)
def test_does_not_conserve_energy(name: str) -> None:
    assert both(NOT_CONSERVING[name], *STATE, 1.0) == (False, False)


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_mass(name: str) -> None:
    assert singular_mass(SINGULAR[name], *STATE, 1.0)


def test_of_the_small_systems() -> None:
    found = {
        name: both(case.system, *map(jnp.asarray, case[2:]), jnp.zeros(()), case.params)
        for name, case in CASES.items()
    }
    assert [name for name in found if found[name][0]] == ["quaternion", "massless"]
    assert [name for name in found if not found[name][1]] == [
        "wire",
        "mixed",
        "prescribed",
    ]


def test_same_answer_when_everything_is_traced() -> None:
    """Also with integers among the parameters, such as {"m": 1}."""
    system = System(
        lambda q, v, t, p: 0.5 * p["m"] * v[:2] @ v[:2] - p["g"][p["axis"]] * q[0],
        coordinates=NAMES,
    )
    params = {"m": 1, "g": np.ones(3), "axis": 2}
    answers = []

    @jax.jit
    @jax.vmap
    def inside(q: Any, p: Any) -> Any:
        answers.append(both(system, q, q, jnp.sum(q), p))
        return q

    inside(jnp.zeros((2, 3)), jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), params))
    assert answers == [(True, True)]
    assert both(system, *STATE, params) == (True, True)


def test_values_that_are_not_defined_everywhere_are_not_judged() -> None:
    system = System(
        lambda q, v, t, p: jnp.sqrt(-q[0]) * v[0] ** 2 * jnp.exp(0 * t), coordinates=NAMES
    )
    assert both(system, *STATE, None) == (False, False)


def test_functions_that_close_over_traced_values_are_not_judged() -> None:
    found = []

    def energy(mass: Any) -> Any:
        system = System(lambda q, v, t, p: 0.5 * mass * v[0] ** 2, coordinates=NAMES)
        found.append(singular_mass(system, *STATE, None))
        return mass

    jax.grad(energy)(2.0)
    jax.jit(energy)(2.0)
    assert found == [False, False]


def test_the_rows_that_a_singular_mass_needs() -> None:
    """A quaternion needs its unit length alone, a bead on a rod both rows, which vanish in turn."""
    body, bead = models.free_body(), models.bead_on_rod()
    tied = Holonomic(lambda q, t, p: jnp.stack([q[0] * q[1] - q[2] * q[3], q @ q - 1]), "tied")
    system = System(
        body.system.lagrangian,
        [tied, *body.system.constraints],
        coordinates=body.system.coordinates,
    )
    assert singular_mass(system, *body.initial(), jnp.zeros(()), body.params) in ((1,), (2,))
    at_rest = bead.initial()
    assert singular_mass(bead.system, *at_rest, jnp.zeros(()), bead.params) == (0, 1)
