"""Gradients through 1,000 steps in three ways; wrong gradients are detected and explained."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System
from jaxmech.run import GradientCheck, check_gradients
from jaxmech.run.tangents import step_sizes, sweep
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
    assert "forward: none" in repr(found)


def judged(differences: Any, reverse: float, forward: float) -> GradientCheck:
    found = sweep(SIZES, np.ones(1), np.asarray(differences)[None], 1e-16)
    ways = np.array([reverse]), np.array([forward])
    return GradientCheck(("x",), *ways, found, 1.0, 1000, 1e-6, np.array([1e-12]), {})


SIZES = step_sizes(None, 2.2e-16)


def test_verdicts() -> None:
    """The derivative of sinh at 0 is 1, and the error of a difference is known from h."""
    smooth = np.sinh(SIZES) / SIZES
    assert judged(smooth, 1.0, 1.0).verdicts == ("agrees",)
    for reverse, forward, text in (
        (1.00001, 1.00001, "wrong derivative rule"),
        (1.00001, 1.0, "only reverse mode is wrong"),
        (1.0, 1.00001, "only forward mode is wrong"),
    ):
        found = judged(smooth, reverse, forward)
        assert found.verdicts == ("differs",)
        assert text in repr(found)
    assert judged(smooth, np.nan, 1.0).verdicts == ("NaN",)
    assert judged(smooth, 1.0, np.nan).verdicts == ("forward NaN",)
    jumps = smooth + np.sign(np.sin(1e4 * SIZES)) / SIZES
    assert judged(jumps, 1.0, 1.0).verdicts == ("no plateau",)
    assert "the finite differences do not converge" in repr(judged(jumps, 1.0, 1.0))


@pytest.mark.slow
def test_the_constraint_and_the_parameter_of_a_nan_are_named() -> None:
    """sqrt(d) at d = 0 spoils d alone in reverse mode, and everything in forward mode."""
    slope = Holonomic(lambda q, t, p: q[1] - jnp.sqrt(p["d"]) * q[0], "slope")
    system = System(spring, [slope], coordinates=("x", "y"))
    found = check_gradients(
        system, [1.0, 0.0], [0.0, 0.0], SHORT, {"d": 0.0, "k": 4.0}, steps=FixedSteps(1)
    )
    assert found.names == ("d", "k", "start")
    assert found.verdicts == ("NaN", "forward NaN", "forward NaN")
    (origin,) = found.origins["d"]
    assert (origin.function, origin.variables, origin.t) == ("constraint 'slope'", ("d",), 0.0)
    assert "which has no derivative with respect to d" in repr(found)
    assert "k, start: forward NaN; it starts in constraint 'slope'" in repr(found)


@pytest.mark.slow
def test_the_time_of_a_nan_is_named() -> None:
    """A clipped root: always finite, without a derivative from t = 0.2 on."""

    def late(q: Any, v: Any, t: Any, p: Any) -> Any:
        ahead = jnp.maximum(0.2 - p["c"] * t, 0.0)
        return -jnp.where(ahead > 0, jnp.sqrt(ahead), 0.0) * v

    found = checked(rubbed(late), {"c": 1.0, "k": 4.0}, steps=FixedSteps(4))
    (origin,) = found.origins["c"]
    assert (origin.function, origin.variables) == ("`force`", ("c",))
    assert origin.t == pytest.approx(0.2)
    assert found.verdicts[1] == "agrees"


def distance(q: Any, v: Any, ts: Any, p: Any) -> Any:
    return jnp.linalg.norm(q - q[:1], axis=1).sum()


@pytest.mark.slow
def test_nan_of_the_loss() -> None:
    found = checked(FREE, loss=distance, params={"c": 0.0, "k": 4.0})
    assert {origin.function for origin in found.origins["k"]} == {"`loss`"}
    verdicts = dict(zip(found.names, found.verdicts, strict=True))
    assert verdicts["k"] == "forward NaN"  # the norm at the start
    assert verdicts["start"] == "NaN"


def test_the_sweep_finds_the_plateau() -> None:
    """With round-off added to a known function, the uncertainty covers the error."""
    draw, sizes = np.random.default_rng(3), SIZES
    x = draw.uniform(0.5, 2.0, 400)[:, None]
    h = x * sizes
    slopes = (np.exp(x + h) - np.exp(x - h)) / (2 * h) + draw.normal(size=h.shape) * 1e-14 / h
    found = sweep(sizes, x[:, 0], slopes, 1e-16)
    error = np.abs(found.values - np.exp(x[:, 0]))
    assert np.mean(error <= found.uncertainties) > 0.98
    assert np.all(error <= 3 * found.uncertainties + 1e-12)
    assert found.uncertainties.max() < 1e-8
    nothing = sweep(sizes, np.ones(1), np.full((1, sizes.size), np.nan), 1e-16)
    assert nothing.chosen[0] == -1
    assert np.isnan(nothing.values[0])
    few = np.where(sizes < 1e-3, np.exp(x[:1]), np.nan)  # large steps fail
    assert sweep(sizes, np.ones(1), few, 0.0).values[0] == pytest.approx(np.exp(x[0, 0]))


def test_nothing_to_differentiate_by() -> None:
    path = Holonomic(lambda q, t, p: q - t, "path")
    prescribed = System(lambda q, v, t, p: 0.5 * v @ v, [path], coordinates=("x",))
    with pytest.raises(ValueError, match="`params` must hold a floating-point number"):
        check_gradients(prescribed, [0.0], [1.0], SHORT[:3], {"count": 3}, steps=FixedSteps(1))
