"""Which parts read parameters, so that a mechanism of numbers alone is not traced."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxmech import parts as jp
from jaxmech.parts.validation import reads_parameters

BAR = jp.planar_body("bar", mass=1.0, inertia=0.1)
NAMED = jp.planar_body("bar", mass="m", inertia=0.1)


def weight(time, params):
    return 9.81


NUMBERS = [
    BAR,
    jp.planar_body("bar", mass=1.0, inertia=0.1, center=np.array([0.1, 0.0])),
    jp.revolute("A", jp.ground, (0, 0), BAR, (-0.5, 0.0)),
    jp.prismatic("slider", jp.ground, (0, 0), BAR, (0, 0), axis=(1.0, 0.0)),
    jp.distance("rod", jp.ground, (0, 0), BAR, (0, 0), length=0.3),
    jp.spring("spring", jp.ground, (0, 0), BAR, (0, 0), stiffness=3.0, length=0.3),
    jp.gravity(),
]
READERS = [
    NAMED,
    jp.planar_body("bar", mass=1.0, inertia=0.1, center=("c", 0.0)),
    jp.revolute("A", jp.ground, (0, 0), BAR, ("l", 0.0)),
    jp.prismatic("slider", jp.ground, (0, 0), BAR, (0, 0), axis="way"),
    jp.distance("rod", jp.ground, (0, 0), BAR, (0, 0), length=lambda t, p: p["l"]),
    jp.spring("spring", jp.ground, (0, 0), BAR, (0, 0), stiffness="k", length=0.3),
    jp.gravity("g"),
    jp.gravity(partial(weight)),
]


@pytest.mark.parametrize("part", NUMBERS)
def test_parts_of_numbers_read_no_parameters(part) -> None:
    assert not reads_parameters(part)


@pytest.mark.parametrize("part", READERS)
def test_names_and_functions_read_parameters(part) -> None:
    assert reads_parameters(part)


def test_only_mechanisms_that_may_read_parameters_are_traced(monkeypatch) -> None:
    traced = []
    shapes = jax.eval_shape
    monkeypatch.setattr(jax, "eval_shape", lambda *args: traced.append(args) or shapes(*args))
    hinge = jp.revolute("A", jp.ground, (0, 0), BAR, (-0.5, 0.0))
    numbers = {"coordinates": "bodies"}
    jp.Mechanism([BAR], [hinge], [jp.gravity()], **numbers)
    assert not traced
    jp.Mechanism([BAR], [hinge], [jp.gravity("g")], {"g": 9.81}, **numbers)
    assert traced
    traced.clear()
    jp.Mechanism([BAR], [hinge], [lambda q, v, t, p: -0.1 * v], **numbers)
    assert traced
