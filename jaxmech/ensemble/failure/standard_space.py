"""The drawn variables of a study as functions of independent standard normal ones.

A variable is x = F⁻¹(Φ(z)), where z = L u is normal with the correlations of the study (its
Gaussian copula) and u is independent: as in `draws`, but with all digits in the upper tail, where
Φ(z) rounds to one, and with derivatives.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log, pi

import numpy as np

from jaxmech.config.errors import Problem, refuse_all
from jaxmech.ensemble.draws.distributions import Discrete, Frozen, Normal, quantile
from jaxmech.ensemble.draws.plans import Rule
from jaxmech.ensemble.draws.sampler import Sampler

_LOG_ROOT = log(2 * pi) / 2
_FARTHEST = 37.0  # deviations beyond which probabilities vanish


@dataclass(frozen=True, eq=False)
class StandardSpace:
    """The map from points u of standard normal space, shape (N, n), to drawn variables."""

    rules: dict[str, Rule]  # distributions, by full name
    factor: np.ndarray | None  # L, of the correlation matrix, if any are correlated

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the variables, such as "parameters.m[3]"."""
        return tuple(self.rules)

    @property
    def size(self) -> int:
        """The number of variables."""
        return len(self.rules)

    @property
    def steps(self) -> tuple[str, ...]:
        """The variables with a few values only, of which nothing is a smooth function."""
        return tuple(key for key, rule in self.rules.items() if isinstance(rule.law, Discrete))

    @cached_property
    def _normals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means and deviations of the variables that are normal, and which of them are."""
        means, deviations = np.zeros(self.size), np.zeros(self.size)
        is_normal = np.zeros(self.size, bool)
        for k, rule in enumerate(self.rules.values()):
            if isinstance(rule.spread, Normal) and rule.spread.low is rule.spread.high is None:
                means[k], deviations[k] = rule.spread.moments(rule.default)
                is_normal[k] = True
        return means, deviations, is_normal

    def correlated(self, u: np.ndarray) -> np.ndarray:
        """The points z, whose entries have the correlations of the study."""
        return u if self.factor is None else u @ self.factor.T

    def columns(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """The variables by full name, shape (N,) each."""
        z = self.correlated(u).T
        means, deviations, is_normal = self._normals
        values = means[:, None] + deviations[:, None] * np.clip(z, -_FARTHEST, _FARTHEST)
        columns = dict(zip(self.rules, values, strict=True))
        for k in np.flatnonzero(~is_normal):
            name = self.names[k]
            columns[name] = normal_quantile(self.rules[name].law, z[k])
        return columns

    def gradient(self, u: np.ndarray, by_column: np.ndarray) -> np.ndarray:
        """Derivatives with respect to u, from those with respect to the variables, (N, n)."""
        z = self.correlated(u)
        _, deviations, is_normal = self._normals
        slopes = np.tile(deviations, (len(u), 1))
        for k in np.flatnonzero(~is_normal):
            slopes[:, k] = slope(self.rules[self.names[k]].law, z[:, k])
        by_z = by_column * slopes
        return by_z if self.factor is None else by_z @ self.factor


def standard_space(sampler: Sampler) -> StandardSpace:
    """The space of the draws of a study, or a StudyError if they have no distribution."""
    if not sampler.drawn:
        message = "must draw a variable: without one, a failure is certain or impossible"
        refuse_all([Problem(("parameters",), message)])
    return StandardSpace(sampler.drawn, sampler.factor)


def normal_quantile(law: Frozen, z: np.ndarray) -> np.ndarray:
    """Values of a distribution at quantiles of the standard normal one."""
    from scipy.special import ndtr

    z = np.clip(z, -_FARTHEST, _FARTHEST)
    return quantile(law, ndtr(z), ndtr(-z))


def slope(law: Frozen, z: np.ndarray) -> np.ndarray:
    """Derivatives of the quantiles with respect to z: φ(z) / f(x), zero for discrete values."""
    if isinstance(law, Discrete):
        return np.zeros_like(z)
    z = np.clip(z, -_FARTHEST, _FARTHEST)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.exp(-(z**2) / 2 - _LOG_ROOT - law.logpdf(normal_quantile(law, z)))
    return np.where(np.isfinite(values), values, 0.0)
