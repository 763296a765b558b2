"""The minimum of a criterion over the experiments within bounds and budgets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.arrays import HostArray

Slope = Callable[[Array], tuple[Array, Array]]
_REFINED = 3  # random experiments from which the criterion is minimized, besides x0
_HALVINGS = 40  # of the way from x0 to an experiment that spends too much
_WITHIN = 1e-9  # share by which a budget may be exceeded
_LOST = 1e6  # criterion of an experiment that cannot be simulated


@dataclass(frozen=True, eq=False)
class Room:
    """The experiments x (k,) that are allowed.

    Attributes:
        low: lower bounds, (k,).
        high: upper bounds, (k,).
        x0: one within them, (k,).
        shares: shares(x) is what x spends in units of the budgets, (m,).
    """

    low: HostArray
    high: HostArray
    x0: HostArray
    shares: Callable[[Array], Array]

    @staticmethod
    def of(x0: Any, bounds: Any, shares: Callable[[Array], Array]) -> "Room":
        """The room of checked arguments."""
        x0, low, high = _checked(x0, bounds)
        most = np.asarray(shares(jnp.asarray(x0)))
        if not (most <= 1 + _WITHIN).all():
            raise ValueError(
                "Argument `x0` must lie within the budget, but spends "
                f"{100 * most.max():.3g} % of it, or of one of them; begin with a smaller input."
            )
        return Room(low, high, x0, shares)

    @property
    def is_limited(self) -> bool:
        """Whether there are budgets."""
        return self.shares(jnp.asarray(self.x0)).size > 0

    def drawn(self, count: int, seed: int) -> HostArray:
        """x0, both ends of the bounds, random experiments, within the budgets, (3 + count, k)."""
        random = np.random.default_rng(seed).uniform(self.low, self.high, (count, self.x0.size))
        return self.affordable(np.stack([self.x0, self.low, self.high, *random]))

    def affordable(self, xs: HostArray) -> HostArray:
        """Of each x the last experiment on the way from x0 that is within the budgets, (j, k)."""
        x0 = jnp.asarray(self.x0)
        if not self.is_limited:
            return xs

        def last(x: Array) -> Array:
            def fits(share: Array) -> Array:
                return jnp.all(self.shares(x0 + share * (x - x0)) <= 1 + _WITHIN)

            def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
                low, high = ends
                middle = (low + high) / 2
                good = fits(middle)
                return jnp.where(good, middle, low), jnp.where(good, high, middle)

            one = jnp.ones((), x0.dtype)
            share = jax.lax.fori_loop(0, _HALVINGS, halve, (0 * one, one))[0]
            return jnp.where(fits(one), x, x0 + share * (x - x0))

        return np.asarray(jax.jit(jax.vmap(last))(jnp.asarray(xs)), float)


def minimum(loss: Callable[[Array], Array], room: Room, xs: HostArray) -> HostArray:
    """The best x (k,), from the best of some experiments (j, k) and from the first of them."""
    values = np.asarray(jax.jit(jax.vmap(loss))(jnp.asarray(xs)))
    if not np.isfinite(values).any():
        raise ValueError(
            "Argument `experiment` must give motions that can be simulated, but none of "
            f"{len(xs)} within the bounds can; narrow the bounds or take shorter steps (`steps`)."
        )
    begins = list(dict.fromkeys((*np.argsort(values)[:_REFINED].tolist(), 0)))
    slope = jax.jit(lambda x: (loss(x), jax.jacfwd(loss)(x)))
    ends = [_improved(slope, room, xs[k]) for k in begins if np.isfinite(values[k])]
    # an end may have lost by what was too much for a budget; the beginnings have not
    rivals = np.concatenate([room.affordable(np.stack(ends)), xs[begins]])
    return rivals[int(np.argmin([float(slope(jnp.asarray(x))[0]) for x in rivals]))]


def _improved(slope: Slope, room: Room, x: HostArray) -> HostArray:
    """The minimum that is reached from an experiment, in units of the bounds."""
    from scipy.optimize import minimize  # slow to import, and seldom needed

    span = room.high - room.low

    def scaled(u: HostArray) -> tuple[float, HostArray]:
        value, by_x = slope(jnp.asarray(room.low + span * u))
        good = np.isfinite(value) & np.isfinite(by_x).all()
        return (float(value), np.asarray(by_x) * span) if good else (_LOST, np.zeros(u.size))

    options = _within_budgets(room, span) if room.is_limited else {"method": "L-BFGS-B"}
    unit = [(0.0, 1.0)] * span.size
    end = minimize(scaled, (x - room.low) / span, jac=True, bounds=unit, **options)
    return np.clip(room.low + span * end.x, room.low, room.high)


def _within_budgets(room: Room, span: HostArray) -> dict[str, Any]:
    """The options of `minimize` under the budgets."""
    shares, by_x = jax.jit(room.shares), jax.jit(jax.jacfwd(room.shares))
    inside = {
        "type": "ineq",
        "fun": lambda u: 1 - np.asarray(shares(jnp.asarray(room.low + span * u)), float),
        "jac": lambda u: -np.asarray(by_x(jnp.asarray(room.low + span * u)), float) * span,
    }
    limits = {"maxiter": 500, "ftol": 1e-12}
    return {"method": "SLSQP", "constraints": [inside], "options": limits}


def _checked(x0: Any, bounds: Any) -> tuple[HostArray, HostArray, HostArray]:
    x0 = np.asarray(x0, float)
    if x0.ndim != 1:
        raise ValueError(f"Argument `x0` must have shape (k,), but has shape {x0.shape}.")
    try:
        low, high = (np.broadcast_to(np.asarray(end, float), x0.shape) for end in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high), numbers or arrays of shape {x0.shape}."
        ) from error
    if not ((low < high).all() and np.isfinite(high - low).all()):
        raise ValueError("Argument `bounds` must hold finite ends with low < high.")
    if not ((low <= x0) & (x0 <= high)).all():
        raise ValueError("Argument `x0` must lie within the bounds.")
    return x0, low, high
