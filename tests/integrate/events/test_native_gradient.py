"""The gradient of a single trajectory with events is native code, as that of a batch is."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Adaptive, Event, FixedSteps, System, Transition, Unilateral, compiler, simulate
from jaxmech import parts as jp
from jaxmech.compiler.frontend.jaxprs import _contents
from jaxmech.integrate import AbstractSteps


def test_no_loop_of_a_gradient_is_left_to_xla() -> None:
    """A spring with k = 1 from x = 0 at a speed v passes x = 1/2 at t = asin(1 / (2 v))."""
    spring = System(lambda q, v, t, p: (v @ v - q @ q) / 2, coordinates=("x",))
    passed = Event(lambda q, v, t, p: q[0] - 0.5, name="passed", keep=1)
    steps: AbstractSteps = Adaptive(rtol=1e-8, max_steps=64)

    def time(speed: jax.Array) -> jax.Array:
        ts = np.linspace(0.0, 1.0, 3)
        sol = simulate(spring, jnp.zeros(1), speed[None], ts, steps=steps, events=passed)
        return sol.events["passed"].t[0]

    gradient = jax.jit(jax.grad(time)).lower(jnp.asarray(2.0))
    assert "stablehlo.while" not in gradient.as_text()
    np.testing.assert_allclose(gradient.compile()(2.0), -1 / (4 * (15 / 16) ** 0.5 * 2), rtol=1e-6)


@pytest.mark.slow
def test_a_step_without_an_event_has_the_derivative_of_a_plain_one() -> None:
    """Of an arm in space, most products of a derivative are with zeros of axes and offsets."""
    bodies = [jp.spatial_body(name, **jp.slender_rod(1.0, 1.0)) for name in ("upper", "lower")]
    base, arm = jp.ground, (-0.5, 0.0, 0.0)
    hinges = [
        jp.revolute("base", base, (0, 0, 0), bodies[0], arm, axis=(0, 0, 1)),
        jp.revolute("elbow", bodies[0], (0.5, 0, 0), bodies[1], arm, axis=(0, 1, 0)),
    ]
    system = jp.Mechanism(bodies, hinges, [jp.gravity("g")], {"g": 9.81}).system
    ts = np.linspace(0.0, 0.3, 4)
    turned_back = Transition(lambda q, v, t, p: (q, -v))
    hit = Event(lambda q, v, t, p: q[1] - 9.0, transition=turned_back, name="hit")

    def operations(events: Any) -> int:
        def end(g: jax.Array) -> jax.Array:
            q0, v0, p = jnp.zeros(2), jnp.ones(2), {"g": g}
            sol = simulate(system, q0, v0, ts, p, steps=FixedSteps(4), events=events)
            return sol.q[-1].sum()

        return compiler.explain(jax.grad(end), jnp.full(8, 9.81)).parts[-1].operations

    assert operations(hit) < 1.5 * operations(())


def test_no_choice_of_a_gradient_passes_on_the_intermediate_values_of_its_sides() -> None:
    """Of a ball that bounces, the sides are steps with a closed gap and steps without."""
    floor = Unilateral(lambda q, t, p: q[0], 0.5, name="floor")
    ball = System(
        lambda q, v, t, p: v @ v / 2 - 9.81 * q[0], coordinates=("x",), unilateral=(floor,)
    )

    def end(q: jax.Array) -> jax.Array:
        sol = simulate(ball, q, jnp.zeros(1), np.linspace(0.0, 1.0, 3), steps=FixedSteps(8))
        return sol.q[-1, 0]

    def numbers_of_choices(jaxpr: Any) -> Iterator[int]:
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "cond":
                yield sum(x.aval.size for x in eqn.outvars)
            for content in _contents(eqn):
                yield from numbers_of_choices(content.jaxpr)

    run, gradient = (
        Counter(numbers_of_choices(jax.make_jaxpr(fn)(jnp.ones(1)).jaxpr))
        for fn in (end, jax.grad(end))
    )
    # Cotangents of q, v, an offset, a time and a step size, and a flag.
    assert 3 <= max(gradient - run) <= 6
