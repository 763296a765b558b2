"""The size of the next step, by PI control, and that of the first step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.adaptive.attempt import ErrorNorm
from jaxmech.integrate.checks import finite_states
from jaxmech.integrate.methods.runge_kutta import AbstractPair
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step_state import EvaluatedState
from jaxmech.integrate.steps import Tolerance
from jaxmech.system import Params

SAFETY = 0.9
LEAST_ERROR = 1e-4  # smallest remembered error: that of a much too small step has no information
FAILED = 0.1  # factor after a step that could not be computed


def grown(method: AbstractPair, error: Array, previous_error: Array) -> Array:
    """The factor from an accepted step to the next one; `previous_error` is that of the one before.

    PI control after Gustafsson; Hairer and Wanner, Solving Ordinary Differential Equations II,
    IV.2: err^-(1/k - 3/4 beta) err_before^beta, k the order of the error of a step.
    """
    control = method.control
    integral = 1 / (control.order + 1) - 0.75 * control.memory
    factor = SAFETY / power(jnp.maximum(error, 1e-14), integral)
    if control.memory:
        factor *= power(previous_error, control.memory)
    return jnp.clip(factor, control.least, control.most)


def power(x: Array, exponent: float) -> Array:
    """x to a multiple of 1/64 that is near the exponent, which is below one.

    By square roots, since native code calls `pow` of the C library for one lane at a time: it took
    a fifth of the time of small systems.
    """
    result, root = jnp.ones_like(x), x
    for place in f"{round(exponent * 64):06b}":
        root = jnp.sqrt(root)
        if place == "1":
            result = result * root
    return result


def shrunk(method: AbstractPair, error: Array) -> Array:
    """The factor from a rejected step to the next attempt."""
    control = method.control
    factor = SAFETY / power(jnp.maximum(error, 1.0), 1 / (control.order + 1))
    # A step that could not be computed has no error to go by.
    return jnp.where(jnp.isfinite(error), jnp.maximum(factor, control.least), FAILED)


def first_step(
    scheme: Scheme, tolerance: Tolerance, start: EvaluatedState, t: Array, span: Array,
    params: Params,
) -> Array:  # fmt: skip
    """The size of the first step, by an explicit Euler step; `span` is signed.

    Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.4, in the metric of
    the mass matrix.
    """
    start, t, span, params = jax.lax.stop_gradient((start, t, span, params))
    state, system = (start.q, start.v), scheme.system
    speeds = system.speeds(*state, t, params)
    norm = ErrorNorm.of(scheme, tolerance, state, state, t, params)
    size = jnp.sqrt(norm.measure(*state))
    speed = jnp.sqrt(norm.measure(speeds, start.qdd))
    # At rest, or at the origin, the ratio has no information.
    tiny = (size < 1e-5) | (speed < 1e-5)
    guess = jnp.where(tiny, 1e-6, 0.01 * size / jnp.where(speed > 0, speed, 1.0))
    guess = jnp.minimum(guess, jnp.abs(span))
    # The change of the accelerations along a step of Euler's method stands for the second
    # derivative.
    h = jnp.sign(span) * guess
    (q, v), _ = finite_states((start.q + h * speeds, start.v + h * start.qdd), state)
    _, law = scheme.law(q, v, t + h, params, start.independent_rows)
    change_of_speeds = h * system.speeds(start.q, start.qdd, t, params)
    change = jnp.sqrt(norm.measure(change_of_speeds, law.qdd - start.qdd)) / guess
    largest = jnp.maximum(speed, jnp.where(jnp.isfinite(change), change, jnp.inf))
    order = scheme.pair.control.order
    usual = power(0.01 / jnp.where(largest <= 1e-15, 1.0, largest), 1 / (order + 1))
    better = jnp.where(largest <= 1e-15, jnp.maximum(1e-6, guess * 1e-3), usual)
    better = jnp.where(jnp.isfinite(largest), better, guess * 1e-3)
    duration = jnp.abs(span)
    # An integer fraction of the span: then rounding differences in the arguments, which occur if
    # separate code computes a part of the start, do not change the bits of the step.
    return duration / jnp.ceil(duration / jnp.minimum(jnp.minimum(100 * guess, better), duration))
