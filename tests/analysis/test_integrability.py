"""Integrability of constraints on velocities by Frobenius' theorem."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.analysis.integrability import integrability
from jaxmech.analysis.states import State


def integrability_of(q: list[float], *constraints: jm.Nonholonomic) -> Any:
    names = tuple(f"q{k}" for k in range(len(q)))
    system = jm.System(lambda q, v, t, p: v @ v / 2, constraints, coordinates=names)
    where = jnp.asarray(q)
    return integrability(system, [State(where, jnp.ones_like(where), jnp.zeros(()), None)])


def edge(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])


STRAIGHT = jm.Nonholonomic(lambda q, v, t, p: v[2], "straight")


def test_a_blade_alone_is_not_integrable_and_with_a_fixed_heading_it_is() -> None:
    blade = jm.Nonholonomic(edge, "blade")
    alone = integrability_of([0.1, 0.2, 0.3], blade)
    assert (alone.integrable, alone.reachable) == ((), 3)
    both = integrability_of([0.1, 0.2, 0.3], blade, STRAIGHT)
    assert (both.integrable, both.reachable) == (("blade", "straight"), 1)


def test_time_counts_as_a_direction() -> None:
    """dx = t dy is not integrable where y is free, and dx = t dt is."""
    free = jm.Nonholonomic(lambda q, v, t, p: v[0] - t * v[1], "wedge")
    assert integrability_of([0.1, 0.2], free).integrable == ()
    ramp = jm.Nonholonomic(lambda q, v, t, p: v[0] - t, "ramp")
    assert integrability_of([0.1, 0.2], ramp).integrable == ("ramp",)


def test_what_is_not_affine_is_named() -> None:
    found = integrability_of(
        [0.1, 0.2, 0.3], jm.Nonholonomic(lambda q, v, t, p: v @ v - 1.0, "speed")
    )
    assert (found.nonlinear, found.integrable) == (("speed",), ())


@pytest.mark.slow
def test_structure_reports_it() -> None:
    """A disk that rolls in the plane: v = r w is the derivative of x = r angle."""
    roll = jm.Nonholonomic(lambda q, v, t, p: v[0] - 0.3 * v[1], "roll")
    disk = jm.System(lambda q, v, t, p: v @ v / 2, [roll], coordinates=("x", "angle"))
    found = jm.analysis.structure(disk, np.zeros(2), np.array([0.3, 1.0]))
    assert found.integrability is not None
    assert found.integrability.integrable == ("roll",)
    assert "'roll' is integrable" in repr(found)
    assert (found.ranks.position_freedom, found.ranks.velocity_freedom) == (2, 1)
