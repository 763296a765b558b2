"""Multilevel Monte Carlo: the mean of a quantity, mostly from trajectories with coarse steps.

Giles, "Multilevel Monte Carlo methods", Acta Numerica 24, 2015. Trajectories with coarse steps give
the mean with its variance. Few pairs, of the same draws with coarse and with finer steps, correct
its bias, since they differ by little.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.blocks.kernel import errors_as_problems
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.draws.sampler import Sampler
from jaxmech.ensemble.members.base import inputs_of, merged, quantity_entries
from jaxmech.ensemble.members.trajectory import StudyTrajectory
from jaxmech.ensemble.study import Study
from jaxmech.integrate import FixedSteps

_PILOT = 256  # trajectories with which a level begins
_BIAS = 0.3  # of the half-width
_MOST_LEVELS = 12
_LEAST_LEVELS = 3
_REFINEMENT = 2  # of the steps from one level to the next
_LEAST_ORDER = 0.5  # to which the means of the levels are assumed to fall


@dataclass(frozen=True)
class MeanLevel:
    """A level: pairs of trajectories of the same draws, with steps and with half as many.

    Attributes:
        per_save: steps per save interval.
        trajectories: number of pairs; of single trajectories in the first level.
        mean: of the differences, or of the quantity in the first level.
        variance: of the same.
        cost: steps of one pair.
    """

    per_save: int
    trajectories: int
    mean: float
    variance: float
    cost: int


@dataclass(frozen=True)
class MultilevelMean:
    """The mean of a quantity, with a bound of its error; prints itself.

    The result of `multilevel_mean`.

    Attributes:
        mean: the estimate.
        half_width: of its interval: sampling and bias together.
        bias: estimate of the error of the finest steps.
        variance: of the quantity.
        levels: the levels, coarse to fine.
        lost: trajectories that could not be computed to their end, and are left out.
    """

    mean: float
    half_width: float
    bias: float
    variance: float
    levels: tuple[MeanLevel, ...]
    lost: int

    @property
    def steps(self) -> int:
        """All steps that were computed."""
        return sum(level.trajectories * level.cost for level in self.levels)

    @property
    def single_level_steps(self) -> int:
        """The steps that trajectories with the finest steps alone would take, for this interval."""
        finest = self.levels[-1]
        sampled = sum(level.variance / level.trajectories for level in self.levels)
        steps = finest.cost * _REFINEMENT // (1 + _REFINEMENT)
        return ceil(self.variance / max(sampled, 1e-300)) * steps

    def __str__(self) -> str:
        lines = [
            f"mean {self.mean:.6g} +- {self.half_width:.2g}, variance {self.variance:.4g}",
            f"  bias of the finest steps about {self.bias:.2g}",
            f"  {self.steps:,} steps; {self.single_level_steps:,} with the finest steps alone",
            "  steps per save  trajectories         mean     variance  steps of each",
        ]
        for x in self.levels:
            moments = f"{x.mean:>13.4g}{x.variance:>13.3g}"
            lines.append(f"  {x.per_save:>14}{x.trajectories:>14,}{moments}{x.cost:>15,}")
        return "\n".join(lines)


def multilevel_mean(
    study: Study, of: str, half_width: float, *, confidence: float = 0.95, folder: Path = Path()
) -> MultilevelMean:
    """The mean of a quantity over the draws of a study, to a given half-width.

    Steps are `FixedSteps` that are halved from level to level, beginning with `steps.per_save` of
    the study, or a single step per save. Levels are added until the last one shows that the bias is
    less than three tenths of the half-width; the numbers of trajectories are those with the least
    number of steps in all.

    Args:
        study: the study; its size, statistics and seed do not matter, but that the seed decides
            which numbers are drawn. `block` trajectories are computed at a time.
        of: an observed quantity with one number per trajectory, or a coordinate at the end.
        half_width: of the interval of the mean, with the bias.
        confidence: of the interval.
        folder: the folder to which relative paths of the study refer.

    Raises:
        StudyError: if the study is impossible, or `of` is no such quantity.
        InputError: if the bias does not fall with the steps.

    Example:
        >>> from jaxmech.ensemble import Normal, Study, Times, multilevel_mean
        >>> study = Study(
        ...     model="pendulum",
        ...     size=256,
        ...     times=Times(end=1.0, saves=6),
        ...     start={"theta": Normal(mean=0.5, sd=0.1)},
        ... )
        >>> result = multilevel_mean(study, "x1", half_width=0.005)
        >>> result.half_width <= 0.005, len(result.levels) >= 3
        (True, True)
    """
    from scipy.special import ndtri

    if not half_width > 0:
        raise refuse("half_width", f"must be above 0, but is {half_width}")
    if study.sampling.design != "random" or study.sampling.table or study.sampling.proposal:
        raise refuse(("sampling",), "must be random draws of the distributions, without weights")
    quantile = float(ndtri(0.5 + confidence / 2))
    largest = ((1 - _BIAS) * half_width / quantile) ** 2  # variance of the estimate
    levels = [_Level(study, of, number, folder) for number in range(_LEAST_LEVELS)]
    while True:
        _sample(levels, largest)
        bias = _bias(levels)
        if bias <= _BIAS * half_width:
            return _result(levels, quantile, bias)
        if len(levels) == _MOST_LEVELS:
            raise InputError(
                f"the mean of {of} still changes by {abs(levels[-1].mean):.2g} when "
                f"{levels[-1].per_save} steps per save are halved; give a larger half_width"
            )
        levels.append(_Level(study, of, len(levels), folder))


def _sample(levels: list["_Level"], largest: float) -> None:
    """Compute trajectories of all levels until the variance of the sum is small enough."""
    for level in levels:
        level.extend(_PILOT)
    while True:
        total = sum(sqrt(level.variance * level.cost) for level in levels)
        wanted = [ceil(total * sqrt(x.variance / x.cost) / largest) for x in levels]
        missing = [(x, n - x.count) for x, n in zip(levels, wanted, strict=True) if n > x.count]
        if not missing:
            return
        for level, count in missing:
            level.extend(level.count + count)


def _bias(levels: list["_Level"]) -> float:
    """The sum of the corrections of all further levels, from those of the last two."""
    last, before = abs(levels[-1].mean), abs(levels[-2].mean)
    noise = sqrt(levels[-1].variance / levels[-1].count)
    order = max(np.log2(before / last) if last > 0 and before > last else 0.0, _LEAST_ORDER)
    return float(max(last, before / 2**order) + noise) / float(2**order - 1)


def _result(levels: list["_Level"], quantile: float, bias: float) -> MultilevelMean:
    mean = sum(level.mean for level in levels)
    spread = sqrt(sum(level.variance / level.count for level in levels))
    squares = sum(float(level.squares.mean()) for level in levels)
    rows = (MeanLevel(x.per_save, x.count, x.mean, x.variance, x.cost) for x in levels)
    return MultilevelMean(
        mean, quantile * spread + bias, bias, max(squares - mean**2, 0.0), tuple(rows),
        sum(level.lost for level in levels),
    )  # fmt: skip


@dataclass(eq=False)
class _Level:
    """The pairs of a level, which are computed as they are needed."""

    study: Study
    of: str
    number: int
    folder: Path
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))  # differences
    squares: np.ndarray = field(default_factory=lambda: np.zeros(0))  # differences of squares
    lost: int = 0
    _drawn: int = 0

    @property
    def per_save(self) -> int:
        steps = self.study.steps
        if not isinstance(steps, FixedSteps):
            raise refuse("steps", "must be fixed steps, which can be halved")
        return (steps.per_save or 1) * _REFINEMENT**self.number

    @property
    def cost(self) -> int:
        intervals, coarse = self.study.times.saves - 1, self.per_save // _REFINEMENT
        return intervals * (self.per_save + (coarse if self.number else 0))

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def variance(self) -> float:
        return max(float(self.values.var(ddof=1)), 1e-300)

    def extend(self, count: int) -> None:
        """Compute pairs until there are so many."""
        block = self._sampler[1]
        while self.count < count:
            fine, coarse = (self._block(fn, block) for fn in self._programs)
            good = np.isfinite(fine) & np.isfinite(coarse)
            self.lost += int((~good).sum())
            if self.lost > max(self._drawn, block) / 2:
                message = "cannot be computed to the end for most draws; give smaller steps"
                raise refuse(("steps", "per_save"), message)
            self.values = np.append(self.values, (fine - coarse)[good])
            self.squares = np.append(self.squares, (fine**2 - coarse**2)[good])
            self._drawn += block

    def _block(self, fn: Callable[[Any, Any], Any] | None, block: int) -> np.ndarray:
        if fn is None:
            return np.zeros(block)
        sampler, _, dtype = self._sampler
        varying, shared = inputs_of(sampler.rows(self._drawn, self._drawn + block), dtype)
        with errors_as_problems():
            return np.asarray(fn(varying, shared), float)

    @cached_property
    def _planned(self) -> Any:
        # Levels must be independent of each other.
        seed = np.random.SeedSequence([self.study.seed, self.number]).generate_state(1)[0]
        bare = replace(self.study, seed=int(seed), statistics={}, until=None, cluster=None)
        return planned(bare, Path(), self.folder)

    @cached_property
    def _sampler(self) -> tuple[Sampler, int, Any]:
        plan = self._planned
        return plan.sampler, plan.study.block_size, np.dtype(plan.study.precision)

    @cached_property
    def _programs(self) -> tuple[Any, Any]:
        return (
            self._program(self.per_save),
            self._program(self.per_save // _REFINEMENT) if self.number else None,
        )

    def _program(self, per_save: int) -> Callable[[Any, Any], Any]:
        plan = self._planned
        assert isinstance(plan.study.steps, FixedSteps)
        steps = replace(plan.study.steps, per_save=per_save)
        study = replace(plan.study, **plan.functions, steps=steps)
        member = StudyTrajectory(study, plan.subject, frozenset({self.of}))

        def compute(varying: Any, shared: Any) -> Any:
            def quantity(draws: Any) -> Any:
                _, values, _ = member.computed(merged(shared, draws), True)
                if self.of not in values:
                    raise refuse(("of",), f"must name a quantity, but {self.of} is none")
                value = values[self.of]
                value = value[-1] if self.of in quantity_entries(member.system) else value
                if value.ndim:
                    message = f"must be one number per trajectory, but {self.of} has shape "
                    raise refuse(("of",), f"{message}{value.shape}; observe it with `keep`")
                return jax.numpy.where(member.is_good(values), value, jax.numpy.nan)

            return jax.vmap(quantity)(varying)

        return jax.jit(compute)
