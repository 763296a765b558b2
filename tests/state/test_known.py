"""The search on the host for one guess: the same point as in a batch, by little code."""

import functools
from typing import Any

import jax.numpy as jnp
import pytest

from jaxmech import parts as jp
from jaxmech.compiler import explain
from jaxmech.system import levels_of, mass_and_rows


@functools.cache
def chain(count: int) -> jp.Mechanism:
    """Spatial bodies joined by hinges, in coordinates of bodies."""
    bodies = [jp.spatial_body(f"b{k}", mass=1.0, inertia=(0.02, 0.03, 0.04)) for k in range(count)]
    axes, ends = [(0, 0, 1), (0, 1, 0), (1, 0, 0)], [jp.ground, *bodies]
    joints = [
        jp.revolute(
            f"j{k}", ends[k], (0, 0, 0.25 if k else 0), bodies[k], (0, 0, -0.25), axis=axes[k % 3]
        )
        for k in range(count)
    ]
    return jp.Mechanism(bodies, joints, [jp.gravity()], {}, coordinates="bodies")


@pytest.mark.slow
@pytest.mark.parametrize("fn", [mass_and_rows, levels_of])
def test_the_code_of_a_chain_grows_with_its_number_of_bodies(fn: Any) -> None:
    """Operations of the functions that `assemble` and `simulate` evaluate."""

    def operations(count: int) -> int:
        system = chain(count).system
        q = jnp.ones((1, 7 * count))
        found = explain(lambda q, v: fn(system, q, v, jnp.zeros(()), {}), q, q)
        return sum(part.operations for part in found.parts)

    three, six, twelve = map(operations, (3, 6, 12))
    assert three > 100
    assert twelve - six <= 2.02 * (six - three)
