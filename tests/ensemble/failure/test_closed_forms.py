"""Limit states in closed form through the interface of studies: functions of drawn numbers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxmech as jm
from jaxmech.config.errors import InputError
from jaxmech.ensemble import (
    Correlation,
    Discrete,
    Failure,
    FailureProbability,
    Fixed,
    LogNormal,
    Normal,
    Observed,
    Sampling,
    Scipy,
    Study,
    Times,
    Uniform,
    failure_probability,
)
from jaxmech.ensemble.failure.limit_state import limit_state_of
from jaxmech.integrate import FixedSteps

MASS = jm.System(lambda q, v, t, p: 0.5 * v @ v, coordinates=("x",))
PLAIN = Normal(mean=0.0, sd=1.0)


def study_of(fn: Any, drawn: dict[str, Any], **settings: Any) -> Study:
    """A study in which a mass rests while a function of the drawn numbers is observed."""
    return Study(
        model=MASS, size=512, block=512, times=Times(end=1.0, saves=2),
        coordinates={"x": Fixed(0.0)}, steps=FixedSteps(per_save=1),
        parameters=drawn, observe={"g": Observed(lambda q, v, t, p: fn(p) + 0.0 * q[0])},
        **settings,
    )  # fmt: skip


def probability(
    fn: Any, drawn: dict[str, Any], method: str = "auto", seed: int = 0, **settings: Any
) -> FailureProbability:
    """The probability that a function is at most 0."""
    sampling = {k: settings.pop(k) for k in ("sampling",) if k in settings}
    failure = Failure(of="g", below=0.0, when="end", method=method, **settings)
    return failure_probability(study_of(fn, drawn, seed=seed, **sampling), failure=failure)


def is_right(result: FailureProbability, exact: float) -> bool:
    """Whether a probability is within four of its standard deviations."""
    return abs(np.log(result.probability / exact)) < 4 * result.coefficient_of_variation


def four_branches(p: Any) -> Any:
    sum_, difference = (p["a"] + p["b"]) / jnp.sqrt(2.0), (p["a"] - p["b"]) / jnp.sqrt(2.0)
    bowl = 3 + 0.2 * difference**2
    return jnp.min(jnp.stack([bowl - sum_, bowl + sum_, 3.5 - difference, 3.5 + difference]))


def of_four_branches() -> float:
    x = np.linspace(-3.5, 3.5, 20_001)
    inside = stats.norm.pdf(x) * (1 - 2 * stats.norm.sf(3 + 0.2 * x**2))
    return 1 - float(np.trapezoid(inside, x))


def test_no_branch_loses_its_gradient() -> None:
    # Under `jax.jit` alone, 81 of these gradients are 0: XLA rounds the branches in two ways, and
    # compares them with the smallest one for equality.
    study = study_of(four_branches, {"a": PLAIN, "b": PLAIN})
    failure = Failure(of="g", below=0.0, when="end")
    limit = limit_state_of(replace(study, failure=failure), Path())
    points = np.random.default_rng(0).normal(size=(512, 2))
    gradients = limit.with_gradients(points)[1]
    along, across = (points @ [[1.0, 1.0], [1.0, -1.0]] / np.sqrt(2.0)).T
    first = 3 + 0.2 * across**2 - np.abs(along) < 3.5 - np.abs(across)
    exact = np.where(first, [-np.sign(along), 0.4 * across], [0.0 * along, -np.sign(across)])
    rotated = (gradients @ [[1.0, 1.0], [1.0, -1.0]] / np.sqrt(2.0)).T
    np.testing.assert_allclose(rotated, exact, atol=1e-12)


@pytest.mark.parametrize("method", ["auto", "subset"])
def test_a_series_system_of_four_branches(method: str) -> None:
    result = probability(four_branches, {"a": PLAIN, "b": PLAIN}, method)
    assert is_right(result, of_four_branches())
    assert result.coefficient_of_variation <= 0.05
    if method == "auto":
        assert len(result.design_points) == 4
        assert any("4 design points" in remark for remark in result.remarks)


def test_a_region_beyond_a_circle() -> None:
    def round_(p: Any) -> Any:
        return 3.0 - jnp.hypot(p["a"] + 1.0, p["b"])

    assert is_right(probability(round_, {"a": PLAIN, "b": PLAIN}), stats.ncx2(2, 1.0).sf(9.0))


def test_correlated_variables_with_distributions_of_their_own() -> None:
    # The product of two correlated log-normal variables is one, too.
    drawn = {"a": LogNormal(sigma=0.2, median=1.0), "b": LogNormal(sigma=0.3, median=2.0)}
    sampling = Sampling(correlation=(Correlation(("a", "b"), 0.5),))
    sd = np.sqrt(0.2**2 + 0.3**2 + 2 * 0.5 * 0.2 * 0.3)
    limit = 2.0 * np.exp(5.5 * sd)
    result = probability(lambda p: limit - p["a"] * p["b"], drawn, "importance", sampling=sampling)
    assert is_right(result, stats.norm.sf(5.5))
    assert result.design_points[0].index == pytest.approx(5.5, rel=1e-3)


def test_the_upper_tail_of_another_distribution_keeps_its_digits() -> None:
    drawn = {"a": Scipy("expon", {"scale": 1.0}), "b": Uniform(0.0, 1.0)}
    result = probability(lambda p: 25.0 - p["a"] - p["b"], drawn, "importance")
    assert is_right(result, np.exp(-25.0) * (np.e - 1))  # 2.4e-11


def test_an_estimate_of_which_few_failures_make_up_much_is_doubted() -> None:
    # Along the whole boundary the density is the same, so no design point stands out.
    one = Scipy("expon", {"scale": 1.0})
    result = probability(lambda p: 25.0 - p["a"] - p["b"], {"a": one, "b": one}, "importance")
    assert any("a single failure carries" in doubt for doubt in result.doubts)


def test_crude_monte_carlo_where_failures_are_frequent() -> None:
    result = probability(lambda p: 1.0 - p["a"], {"a": PLAIN})
    assert result.method == "monte-carlo"
    assert is_right(result, stats.norm.sf(1.0))


def test_a_jump_and_a_plateau() -> None:
    def jumps(p: Any) -> Any:
        return jnp.where(p["a"] > 3.0, -1.0, 4.0 - p["a"])

    result = probability(jumps, {"a": PLAIN}, "subset")
    assert is_right(result, stats.norm.sf(3.0))

    def plateau(p: Any) -> Any:
        return jnp.where(p["a"] > 2.0, -1.0, 1.0)

    result = probability(plateau, {"a": PLAIN}, coefficient_of_variation=0.1)
    assert any("flat" in remark for remark in result.remarks)
    assert is_right(result, stats.norm.sf(2.0))
    with pytest.raises(InputError, match="'form' needs a design point, but no"):
        probability(plateau, {"a": PLAIN}, "form")


def test_failures_far_from_the_design_points_are_found_by_the_pilot() -> None:
    # The gradient leads to one region, 4.2 away; the other is a step that it does not see.
    def hidden(p: Any) -> Any:
        return jnp.where(p["a"] < -3.0, -0.5 - 0.1 * jnp.tanh(p["a"] + 3), 4.2 - p["a"])

    result = probability(hidden, {"a": PLAIN, "b": PLAIN})
    assert result.method == "subset"
    assert is_right(result, stats.norm.sf(3.0) + stats.norm.sf(4.2))
    assert any("there are failures far from them" in remark for remark in result.remarks)


def test_a_discrete_variable_is_named() -> None:
    drawn = {"a": PLAIN, "k": Discrete((0.0, 1.0), probabilities=(0.99, 0.01))}
    result = probability(lambda p: 4.0 - p["a"] - 2.0 * p["k"], drawn)
    assert is_right(result, 0.99 * stats.norm.sf(4.0) + 0.01 * stats.norm.sf(2.0))
    assert any("parameters.k, which has a few values" in remark for remark in result.remarks)
