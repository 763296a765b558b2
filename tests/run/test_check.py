"""Gradients through 1,000 steps in three ways; wrong gradients are detected and explained."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System
from jaxmech.run import GradientCheck, check_gradients
from jaxmech.run.gradient_check import plateau, verdicts_of
from tests.small import REDUNDANT

TS = np.linspace(0.0, 2.0, 51)
THOUSAND = FixedSteps(per_save=20)
SHORT = TS[:21]
PARAMS = {"c": 0.4, "k": 4.0}


def spring(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - 0.5 * p["k"] * q @ q


def rubbed(force: Any) -> System:
    return System(spring, force=force, coordinates=("x", "y"))


FREE = System(spring, coordinates=("x", "y"))


def checked(system: System, params: Any = PARAMS, **options: Any) -> GradientCheck:
    return check_gradients(system, [1.0, 0.5], [0.0, 0.0], SHORT, params, **options)


def assert_equal_in_three_ways(found: GradientCheck) -> None:
    """To 1e-6, in fact to a hundredth of it; the two modes to round-off."""
    assert found.ok, found
    assert found.steps == 1000
    assert found.forward is not None
    largest = np.abs(found.reverse).max()
    np.testing.assert_allclose(found.reverse, found.difference, rtol=1e-8, atol=1e-11 * largest)
    np.testing.assert_allclose(found.forward, found.reverse, rtol=1e-11, atol=1e-13 * largest)


@pytest.mark.slow
def test_rods_that_are_redundant() -> None:
    """The length moves the surface, so the start moves with it; rank 1 of 3."""
    found = check_gradients(*REDUNDANT[:1], *REDUNDANT[2:], TS, REDUNDANT.params, steps=THOUSAND)
    assert found.names == ("g", "l", "m", "start")
    assert_equal_in_three_ways(found)
    assert abs(found.reverse[1]) > 1


def loss(q: Any, v: Any, ts: Any, p: Any) -> Any:
    return q[-1, 0]


def test_closed_form_with_a_loss() -> None:
    """x = x0 cos(sqrt(k) t), from a start that no parameter changes."""
    found = checked(FREE, {"k": 4.0, "unused": 1.5}, loss=loss, steps=FixedSteps(10))
    assert found.ok, found
    w, t = 2.0, SHORT[-1]
    assert found.reverse[0] == pytest.approx(-t * np.sin(w * t) / (2 * w), rel=1e-6)
    assert found.reverse[1] == 0.0
    assert "3 of 3 derivatives agree (200 steps" in repr(found)


@jax.custom_vjp
def cube(x: Any) -> Any:
    return x**3


cube.defvjp(lambda x: (x**3, x), lambda x, ct: (2 * x**2 * ct,))  # 3 is right


@pytest.mark.slow
def test_a_wrong_derivative_rule_is_detected() -> None:
    found = checked(rubbed(lambda q, v, t, p: -cube(p["c"] * v)))
    assert not found.ok
    assert found.forward is None
    assert found.verdicts[found.names.index("c")] == "differs"
    assert "wrong derivative rule (`custom_jvp`" in repr(found)


SIZES = 10.0 ** -np.linspace(1, 9, 17)


def judged(differences: Any, reverse: float, forward: float) -> str:
    one = np.ones(1)
    best = plateau(np.asarray(differences)[None], SIZES, one, 1e-16)
    (verdict,) = verdicts_of(reverse * one, forward * one, *best, one, 1e-12 * one, 1e-6)
    return verdict


def test_verdicts() -> None:
    """The derivative of sinh at 0 is 1, and the error of a difference is known from h."""
    smooth = np.sinh(SIZES) / SIZES
    assert judged(smooth, 1.0, 1.0) == "agrees"
    assert judged(smooth, 1.00001, 1.0) == judged(smooth, 1.0, 1.00001) == "differs"
    assert judged(smooth, np.nan, 1.0) == judged(smooth, 1.0, np.nan) == "NaN"
    assert judged(smooth + np.sign(np.sin(1e4 * SIZES)) / SIZES, 1.0, 1.0) == "no plateau"


@pytest.mark.slow
def test_the_constraint_and_the_parameter_of_a_nan_are_named() -> None:
    """sqrt(d) at d = 0 spoils d alone in reverse mode, and everything in forward mode."""
    slope = Holonomic(lambda q, t, p: q[1] - jnp.sqrt(p["d"]) * q[0], "slope")
    system = System(spring, [slope], coordinates=("x", "y"))
    found = check_gradients(
        system, [1.0, 0.0], [0.0, 0.0], SHORT, {"d": 0.0, "k": 4.0}, steps=FixedSteps(1)
    )
    assert found.names == ("d", "k", "start")
    assert found.verdicts == ("NaN", "NaN", "NaN")
    assert found.origins[0] == "constraint 'slope' by d at t = 0 s"
    assert "constraint 'slope' by d" in repr(found)


@pytest.mark.slow
def test_the_time_of_a_nan_is_named() -> None:
    """A clipped root: always finite, without a derivative from t = 0.2 on."""

    def late(q: Any, v: Any, t: Any, p: Any) -> Any:
        ahead = jnp.maximum(0.2 - p["c"] * t, 0.0)
        return -jnp.where(ahead > 0, jnp.sqrt(ahead), 0.0) * v

    found = checked(rubbed(late), {"c": 1.0, "k": 4.0}, steps=FixedSteps(4))
    assert found.origins == ("`force` by c at t = 0.2 s",)
    assert found.verdicts[0] == "NaN"


def test_the_plateau_of_differences() -> None:
    """With round-off added to a known function, the uncertainty covers the error."""
    draw, sizes = np.random.default_rng(3), SIZES
    x = draw.uniform(0.5, 2.0, 400)[:, None]
    h = x * sizes
    slopes = (np.exp(x + h) - np.exp(x - h)) / (2 * h) + draw.normal(size=h.shape) * 1e-14 / h
    values, uncertainties = plateau(slopes, sizes, x[:, 0], 1e-16)
    error = np.abs(values - np.exp(x[:, 0]))
    assert np.mean(error <= uncertainties) > 0.98
    assert np.all(error <= 3 * uncertainties + 1e-12)
    assert uncertainties.max() < 1e-8
    assert np.isnan(plateau(np.full((1, sizes.size), np.nan), sizes, np.ones(1), 1e-16)[0])
    few = np.where(sizes < 1e-3, np.exp(x[:1]), np.nan)  # large steps fail
    assert plateau(few, sizes, np.ones(1), 0.0)[0] == pytest.approx(np.exp(x[0, 0]))


def test_a_start_that_cannot_move() -> None:
    path = Holonomic(lambda q, t, p: q - t, "path")
    prescribed = System(lambda q, v, t, p: 0.5 * v @ v, [path], coordinates=("x",))
    found = check_gradients(prescribed, [0.0], [1.0], SHORT[:3], {"count": 3}, steps=FixedSteps(1))
    assert found.names == ("start",)
    assert found.ok, found
    assert abs(found.reverse[0]) < 1e-12
