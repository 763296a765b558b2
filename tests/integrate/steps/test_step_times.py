"""Times at which a step ends without being named: samples of inputs, and jumps at save times."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Adaptive, FixedSteps, Holonomic, Signal, System
from jaxmech.errors import TimesWarning
from jaxmech.integrate.spans import NO_TIMES
from jaxmech.integrate.step_size import choose_steps
from jaxmech.integrate.steps import ending_at_jumps, step_times

TS = np.linspace(0.0, 10.0, 11)
ZERO = np.zeros(1)
FREE = System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("x",))


def pushed(force: Callable[[Any, Any], Any]) -> System:
    """A mass on a spring, pushed by a function of time and parameters."""
    return System(
        lambda q, v, t, p: 0.5 * v @ v - 0.5 * q @ q,
        force=lambda q, v, t, p: jnp.reshape(force(t, p), (1,)) - 0.1 * jnp.abs(v),
        coordinates=("x",),
    )


def ends(system: System, p: Any, steps: Any = None) -> Any:
    """The times at which steps end in a policy."""
    at = jnp.asarray(ZERO), jnp.asarray(ZERO), jnp.asarray(TS)
    return ending_at_jumps(system, steps or FixedSteps(4), *at, p).times


def test_steps_end_at_the_samples_of_inputs_in_the_run() -> None:
    params = {
        "hold": Signal([-2.0, 1.0, 2.5, 30.0], np.arange(4.0), "hold", delay=0.25),
        "line": Signal([4.0, 6.0], [0.0, 1.0]),
        "smooth": Signal([3.0, 7.0], [0.0, 1.0], "cubic"),
    }
    times = step_times(FREE, jnp.array([0.5]), jnp.asarray(TS), params, TS)
    assert times.tolist() == [0.5, 1.25, 2.75, 4.0, 6.0]
    smooth = {"smooth": params["smooth"], "k": 1.0}
    assert step_times(FREE, NO_TIMES, jnp.asarray(TS), smooth, TS).shape == (0,)

    def last(delay: Any) -> Any:  # by a delay, whose value is not known
        late = Signal([1.0, 40.0], [0.0, 1.0], delay=delay)
        return step_times(FREE, NO_TIMES, jnp.asarray(TS), {"late": late}, TS)[-1]

    value, slope = jax.jit(jax.value_and_grad(last))(0.5)
    assert (value, slope) == (40.5, 1.0)


@pytest.mark.parametrize(
    ("force", "times"),
    [
        (lambda t, p: jnp.where(t < p["a"], 1.0, 0.0), (3.0,)),
        (lambda t, p: jnp.floor(t / 4), (0.0, 4.0, 8.0)),
        (lambda t, p: p["a"] * jnp.sin(t), ()),
        (lambda t, p: p["a"], ()),
    ],
)
def test_jumps_at_save_times_are_ends_of_steps(force: Any, times: Any) -> None:
    params = {"a": jnp.asarray(3.0)}
    assert ends(pushed(force), params) == times
    # Nothing is known under `jit`, and a policy with times is the user's.
    jax.jit(lambda p: ends(pushed(force), p) == () or 1 / 0)(params)
    assert ends(pushed(force), params, Adaptive(times=(0.5,))) == (0.5,)


def test_abrupt_changes_between_saves_are_named() -> None:
    step = pushed(lambda t, p: jnp.where(t < p["a"], 0.0, 1.0))
    with pytest.warns(TimesWarning, match=r"near t = 5.43 s, .* `FixedSteps\(times="):
        assert ends(step, {"a": jnp.asarray(5.4321)}) == ()
    assert ends(step, {"a": jnp.asarray(5.4321)}, FixedSteps(4, max_step=0.01)) == ()
    pulse = pushed(lambda t, p: jnp.exp(-(((t - 3.0) / p["a"]) ** 2)))
    with pytest.warns(TimesWarning, match="near t = 2.9"):
        assert ends(pulse, {"a": 0.01}, Adaptive()) == ()
    assert ends(pulse, {"a": 0.5}, Adaptive()) == ()
    # Of a stiffness as well, whose force is zero at rest, and of a drive that starts.
    soft = System(
        lambda q, v, t, p: 0.5 * v @ v - 0.5 * jnp.where(t < 2.2, 1.0, 2.0) * q @ q,
        coordinates=("x",),
    )
    drive = Holonomic(lambda q, t, p: q - 0.5 * jnp.maximum(0.0, t - p["a"]))
    late = System(lambda q, v, t, p: 0.5 * v @ v, [drive], coordinates=("x",))
    for system, a in ((soft, 2.2), (late, 7.7)):
        with pytest.warns(TimesWarning, match="near t = " + str(a - 0.1)[:3]):
            ends(system, {"a": a})
    assert ends(late, {"a": 2.0}) == (2.0,)
    held = pushed(lambda t, p: p["motor"](t))  # a sample is the end of a step in any case
    ends(held, {"motor": Signal([0.0, 4.4321], [0.0, 5.0], "hold")})


@pytest.mark.slow
def test_chosen_steps_end_at_jumps() -> None:
    step = pushed(lambda t, p: jnp.where(t < p["a"], 0.0, 1.0))
    steps = choose_steps(step, ZERO, ZERO, TS, {"a": jnp.asarray(3.0)})
    assert steps.times == (3.0,)
