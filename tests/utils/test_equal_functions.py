"""Functions that the same code defines again share their programs, others do not."""

from typing import Any

import jax.numpy as jnp
import pytest

import jaxmech as jm
from jaxmech.utils.equal_functions import first_equal


def oscillator(k: float, default: Any = 1.0) -> jm.System:
    return jm.System(
        lambda q, v, t, p, scale=default: 0.5 * scale * v @ v - 0.5 * p["k"] * q @ q,
        [jm.Holonomic(lambda q, t, p: q[1:], "line")],
        force=lambda q, v, t, p: -k * v,
        coordinates=("x", "y"),
    )


def test_systems_by_the_same_code_are_equal_up_to_the_variables_that_they_read() -> None:
    first, second = oscillator(0.1), oscillator(0.1)
    assert second.lagrangian is first.lagrangian
    assert second.constraints[0].fn is first.constraints[0].fn
    assert second.force is not first.force  # another variable, which may change alone


@pytest.mark.parametrize("pair", [(0.0, -0.0), (1, 1.0), (1, True), ([1.0], [1.0])])
def test_defaults_are_compared_with_their_types(pair: tuple[Any, Any]) -> None:
    functions = [oscillator(0.1, x).lagrangian for x in pair]
    assert functions[0] is not functions[1]


def test_functions_with_attributes_remain_themselves() -> None:
    def made(rate: float) -> Any:
        def law(x: Any) -> Any:
            return x * law.rate

        law.rate = rate
        return law

    assert first_equal(law := made(2.0)) is law
    assert first_equal(other := made(3.0)) is other


def test_a_fit_with_the_observation_of_before_compiles_nothing() -> None:
    traced = []

    def note(q: Any) -> Any:
        traced.append(1)
        return q[:1]

    system = oscillator(0.0)
    ts = jnp.linspace(0.0, 1.0, 11)
    start = jnp.array([1.0, 0.0]), jnp.zeros(2)
    x = jm.simulate(system, *start, ts, {"k": 4.0}).q[:, :1]
    for _ in range(2):
        before, recording = len(traced), jm.Recording(ts, x, *start)
        found = jm.fit(system, recording, {"k": 3.0}, observe=lambda q, v, t, p: note(q))
        assert found.params["k"] == pytest.approx(4.0, rel=1e-5)
    assert len(traced) - before < before / 3
