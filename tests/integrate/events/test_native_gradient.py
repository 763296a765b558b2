"""The gradient of a single trajectory with events is native code, as that of a batch is."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech import Adaptive, Event, System, simulate
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
