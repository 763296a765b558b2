"""`choose_measurements`: choose the sensors or samples that are worth their cost.

The information of independent measurements adds up, H = sum of w_i H_i, with w_i = 1 for those that
are made. The algorithm is greedy: it repeatedly adds the measurement that improves the criterion
most for its cost, among those that the budget allows; then it tries single exchanges until none is
better (Fedorov, "Theory of optimal experiments", 1972), and spends what they leave of the budget.
In general the result is not a global optimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.identify.inference.information import square
from jaxmech.identify.planning.criterion import AbstractCriterion, DOptimal
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_finite

_UNKNOWN = 1e-8  # share of the whole information that counts as none
_BETTER = 1e-10  # decrease of the criterion that counts


@dataclass(frozen=True, eq=False)
class MeasurementChoice:
    """The measurements that were chosen.

    The result of `choose_measurements`.

    Attributes:
        chosen: their indices, in increasing order; a measurement that is made twice occurs twice.
        cost: the sum of their costs.
        information: the sum of their information and of what was known, shape (p, p).
        loss: the criterion of this information.
    """

    chosen: tuple[int, ...]
    cost: float
    information: HostArray
    loss: float


def choose_measurements(
    sensitivities: Any,
    budget: float | int,
    *,
    costs: Any = 1.0,
    criterion: AbstractCriterion = DOptimal(),
    known: Any = None,
    repeats: bool = False,
) -> MeasurementChoice:
    """Choose sensors or samples by their information about p numbers, within a budget.

    Args:
        sensitivities: derivatives of each measurement with respect to the numbers, in units of its
            noise, shape (K, p), or (K, m, p) for measurements of m values, such as a sensor with
            all its samples.
        budget: largest sum of the costs; with the default costs, the number of measurements.
        costs: cost of each measurement, a number or shape (K,).
        criterion: `DOptimal()`, `AOptimal()`, or `COptimal(direction)` for a single combination.
        known: information that is already available, such as that of a fit, shape (p, p).
        repeats: whether a measurement may be made more than once.

    Raises:
        ValueError: if a shape is wrong, a cost is not positive, or no measurement is within the
            budget.

    Example:
        A straight line is known best from its ends:

        >>> x = np.linspace(-1.0, 1.0, 5)
        >>> choose_measurements(np.stack([np.ones(5), x], axis=1), 2).chosen
        (0, 4)
    """
    informations = _informations(sensitivities)
    count, p = informations.shape[:2]
    prices = _prices(costs, count, float(budget))
    whole = informations.sum(0)
    start = _UNKNOWN * np.diag(np.where(np.diag(whole) > 0, np.diag(whole), 1.0))
    if known is not None:
        start = start + square(known, p, "known")
    search = _ExchangeSearch(informations, prices, float(budget), start, criterion, repeats)
    chosen = search.solve()
    H = start + informations[chosen].sum(0)
    cost = float(prices[chosen].sum())
    return MeasurementChoice(tuple(sorted(chosen)), cost, H, float(search.losses(H[None])[0]))


def _informations(sensitivities: Any) -> HostArray:
    J = np.asarray(sensitivities, float)
    if J.ndim not in (2, 3):
        raise ValueError(
            "Argument `sensitivities` must have shape (K, p) or (K, m, p), but has shape "
            f"{J.shape}."
        )
    require_finite(sensitivities=J)
    J = J[:, None, :] if J.ndim == 2 else J
    return np.einsum("kmi,kmj->kij", J, J)


def _prices(costs: Any, count: int, budget: float) -> HostArray:
    costs = np.asarray(costs, float)
    if costs.shape not in ((), (count,)):
        raise ValueError(
            f"Argument `costs` must be a number or have shape ({count},), but has shape "
            f"{costs.shape}."
        )
    if not (np.isfinite(costs) & (costs > 0)).all():
        raise ValueError("Argument `costs` must be positive and finite.")
    if not costs.min() <= budget < np.inf:
        raise ValueError(
            f"Argument `budget` must allow the cheapest measurement, which costs {costs.min():g}, "
            f"but is {budget:g}."
        )
    return np.broadcast_to(costs, (count,))


@dataclass(frozen=True, eq=False)
class _ExchangeSearch:
    informations: HostArray
    prices: HostArray
    budget: float
    start: HostArray
    criterion: AbstractCriterion
    repeats: bool

    def losses(self, H: HostArray) -> HostArray:
        """The criterion of informations (k, p, p), infinite where it is not a number."""
        losses = np.asarray(jax.vmap(self.criterion.loss)(jnp.asarray(H)))
        return np.where(np.isfinite(losses), losses, np.inf)

    def affordable(self, chosen: Sequence[int], left: float) -> list[int]:
        """The measurements that may be added within what is left of the budget."""
        within = np.flatnonzero(self.prices <= left * (1 + 1e-12)).tolist()
        return within if self.repeats else [k for k in within if k not in chosen]

    def solve(self) -> list[int]:
        """What neither another measurement nor an exchange improves."""
        chosen, count = self.fill([]), -1
        while len(chosen) != count:
            count = len(chosen)
            chosen = self.fill(self.exchange(chosen))
        return chosen

    def fill(self, chosen: list[int]) -> list[int]:
        """The same and the best for their cost, one after the other, as far as the budget goes."""
        chosen, left = list(chosen), self.budget - self.prices[chosen].sum()
        H = self.start + self.informations[chosen].sum(0)
        while candidates := self.affordable(chosen, left):
            gains = self.losses(H[None])[0] - self.losses(H + self.informations[candidates])
            best = candidates[int(np.argmax(gains / self.prices[candidates]))]
            chosen.append(best)
            H, left = H + self.informations[best], left - self.prices[best]
        return chosen

    def exchange(self, chosen: list[int]) -> list[int]:
        """The same after all exchanges of one for another that improve the criterion."""
        loss = self.losses((self.start + self.informations[chosen].sum(0))[None])[0]
        improved = True
        while improved:
            improved = False
            for index in range(len(chosen)):
                rest = chosen[:index] + chosen[index + 1 :]
                left = self.budget - self.prices[rest].sum()
                candidates = self.affordable(rest, left)
                H = self.start + self.informations[rest].sum(0)
                losses = self.losses(H + self.informations[candidates])
                best = int(np.argmin(losses))
                if losses[best] < loss - _BETTER:
                    chosen, loss, improved = [*rest, candidates[best]], losses[best], True
        return chosen
