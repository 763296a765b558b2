"""Designs and distributions: what is drawn, in any order and for any range."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxmech.config.load import load
from jaxmech.config.toml import plain, structure
from jaxmech.ensemble import (
    Correlation,
    Discrete,
    LogNormal,
    Normal,
    Sampling,
    Scipy,
    Study,
    Times,
    Uniform,
)
from jaxmech.ensemble.draws import Sampler

RULES = {
    "m1": Normal(mean=1.0, sd=0.2, low=0.8),
    "m2": LogNormal(median=1.0, sigma=0.2, high=1.5),
    "l1": Scipy("triang", {"c": 0.2, "loc": 0.5}),
    "l2": Scipy("gamma", {"a": 3.0, "scale": 0.3, "high": 2.0}),
    "g": Discrete((9.7, 9.8, 9.9), (0.2, 0.5, 0.3)),
}


def sampler(size: int = 4000, rules: Any = RULES, **how: Any) -> Sampler:
    sampling = Sampling(**how)
    study = Study(
        model="double_pendulum", size=size, times=Times(end=1.0), parameters=rules,
        sampling=sampling,
    )  # fmt: skip
    return Sampler(study, load("double_pendulum", {}))


def columns(size: int = 4000, **how: Any) -> dict[str, np.ndarray]:
    found = sampler(size, **how).columns(0, size)
    return {key.partition(".")[2]: x for key, x in found.items()}


@pytest.mark.parametrize("design", ["random", "latin-hypercube", "sobol"])
def test_every_design_draws_the_distributions(design) -> None:
    found = columns(design=design)
    gamma = stats.gamma(3.0, scale=0.3)
    exact = {
        "m1": stats.truncnorm(-1.0, np.inf, loc=1.0, scale=0.2).cdf,
        "m2": lambda x: stats.norm.cdf(np.log(x) / 0.2) / stats.norm.cdf(np.log(1.5) / 0.2),
        "l1": stats.triang(0.2, loc=0.5).cdf,
        "l2": lambda x: gamma.cdf(x) / gamma.cdf(2.0),
    }
    for name, cdf in exact.items():
        assert stats.kstest(found[name], cdf).pvalue > 1e-3, name
    shares = [np.mean(found["g"] == x) for x in (9.7, 9.8, 9.9)]
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.03)
    assert np.abs(np.corrcoef(np.stack([*found.values()])) - np.eye(5)).max() < 0.06


@pytest.mark.parametrize("design", ["random", "latin-hypercube", "sobol"])
def test_a_range_is_that_part_of_the_whole(design) -> None:
    some = sampler(700, design=design, correlation=())
    whole = some.columns(0, 700)
    for first, last in ((0, 7), (650, 700), (123, 400), (401, 402), (400, 401)):
        part = some.columns(first, last)
        assert all(np.array_equal(part[key], whole[key][first:last]) for key in whole)


def test_a_trillion_trajectories_take_no_memory() -> None:
    found = sampler(10**12, design="random").columns(10**12 - 5, 10**12)
    assert all(len(x) == 5 and np.isfinite(x).all() for x in found.values())


def test_a_latin_hypercube_has_one_point_in_each_interval() -> None:
    rules = {"m1": Uniform(0.0, 1.0), "m2": Uniform(0.0, 1.0)}
    found = columns(1000, rules=rules, design="latin-hypercube")
    for x in found.values():
        assert np.array_equal(np.sort(np.floor(1000 * x)), np.arange(1000))
    assert abs(np.corrcoef(found["m1"], found["m2"])[0, 1]) < 0.1


def test_correlations_are_those_of_the_copula() -> None:
    pairs = (Correlation(("m1", "l1"), 0.8), Correlation(("parameters.m2", "l2"), -0.5))
    rules = dict.fromkeys(("m1", "m2", "l1", "l2"), Normal(mean=1.0, sd=0.1))
    found = columns(20_000, rules=rules, correlation=pairs)
    matrix = np.corrcoef(np.stack([found[name] for name in ("m1", "l1", "m2", "l2")]))
    exact = np.eye(4)
    exact[0, 1] = exact[1, 0] = 0.8
    exact[2, 3] = exact[3, 2] = -0.5
    assert matrix == pytest.approx(exact, abs=0.03)
    skewed = columns(20_000, correlation=pairs)
    rank = stats.spearmanr(skewed["m1"], skewed["l1"]).statistic
    assert rank == pytest.approx(6 / np.pi * np.arcsin(0.4), abs=0.02)  # of a Gaussian copula
    assert stats.kstest(skewed["l1"], stats.triang(0.2, loc=0.5).cdf).pvalue > 1e-3


def test_any_distribution_of_scipy_is_stored_as_it_was_given() -> None:
    data = {"distribution": "weibull_min", "c": 1.5, "scale": 2.0}
    given = {"model": "pendulum", "size": 2, "times": {"end": 1.0}, "parameters": {"m": data}}
    study = structure(given, Study)
    assert study.parameters["m"] == Scipy("weibull_min", {"c": 1.5, "scale": 2.0})
    assert plain(study)["parameters"]["m"] == data
