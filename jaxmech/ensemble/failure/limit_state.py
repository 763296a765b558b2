"""`LimitState`: the margins of motions, and their gradients, at points of standard normal space.

A drawn variable is x = F⁻¹(Φ(z)), where z = L u is normal with the correlations of the study (its
Gaussian copula) and u is independent: as in `draws`, but with all digits in the upper tail, where
Φ(z) rounds to one, and with derivatives. All calls have one of two shapes, some lanes of margins or
of margins with gradients, so that two programs are compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log, pi
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmech.config.errors import StoppedError, refuse
from jaxmech.ensemble.blocks.kernel import errors_as_problems, with_steps
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.draws.distributions import Law
from jaxmech.ensemble.draws.sampler import Sampler, at_normal
from jaxmech.ensemble.failure.margin import Margin, require_quantity
from jaxmech.ensemble.members.trajectory import inputs_of, merged
from jaxmech.ensemble.study import Study

GRADIENT_LANES = 16  # margins with gradients in one call
_LANES = 64  # margins in one call on a CPU, where more are no faster
_BLOCK = 512  # trajectories that are computed at a time by default
_LOG_ROOT = log(2 * pi) / 2


class ExhaustedError(Exception):
    """As many trajectories are computed as are allowed."""


@dataclass(eq=False)
class LimitState:
    """The margin as a function of points u, shape (N, n); it counts its trajectories."""

    margin: Margin
    sampler: Sampler
    most: int  # trajectories that may be computed
    stop: Callable[[], bool] = lambda: False  # whether to end before the next call
    trajectories: int = 0  # including those with gradients
    gradients: int = 0
    lost: int = 0  # trajectories that could not be computed to their end
    nearest: float = inf  # the smallest margin of all trajectories

    @property
    def names(self) -> tuple[str, ...]:
        """The full names of the variables, such as "parameters.m[3]"."""
        return tuple(self.sampler.drawn)

    @property
    def size(self) -> int:
        """The number of variables."""
        return len(self.sampler.drawn)

    @property
    def block(self) -> int:
        """The number of points that a method draws at a time."""
        return self.margin.study.block_size

    @property
    def left(self) -> int:
        """How many more trajectories may be computed."""
        return self.most - self.trajectories

    def values(self, u: np.ndarray) -> np.ndarray:
        """The margins of some points, shape (N,)."""
        return np.asarray(self._computed(u, False)["margin"], float)

    def with_gradients(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The margins of some points and their gradients, shapes (N,) and (N, n)."""
        values = self._computed(u, True)
        self.gradients += len(u)
        drawn, z = self.sampler.drawn, self.correlated(u)
        slopes = np.zeros((len(u), self.size))
        for k, (section, variable, index) in enumerate(self.sampler.entries.values()):
            entry: Any = (slice(None), *index)
            slopes[:, k] = values["gradient"][section][variable][entry]
        slopes[values["lost"]] = 0.0
        slopes *= np.stack([_slope(law, z[:, k]) for k, law in enumerate(drawn.values())], 1)
        factor = self.sampler.factor
        return values["margin"].astype(float), slopes if factor is None else slopes @ factor

    def motion(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """The initial state and parameters of the motion of a point, shape (n,)."""
        # By the program of the gradients, which is compiled already where there are such points.
        q, v, params = jax.tree.map(lambda x: x[0], self._evaluated(u[None], True)["motion"])
        return q, v, params

    def correlated(self, u: np.ndarray) -> np.ndarray:
        """The points z, whose entries have the correlations of the study."""
        return u if self.sampler.factor is None else u @ self.sampler.factor.T

    def columns(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """The drawn variables of some points, by full name, shape (N,) each."""
        z, laws = self.correlated(u), self.sampler.drawn.items()
        return {name: at_normal(law, z[:, k]) for k, (name, law) in enumerate(laws)}

    def nearest_text(self) -> str:
        """How near to the failure a trajectory came."""
        failure = self.margin.failure
        if failure.threshold is None:
            return f"the function of {failure.of} comes within {self.nearest:.4g} of its event"
        extreme = "largest" if failure.below is None else "smallest"
        value = failure.threshold + failure.margin_sign * self.nearest
        return (
            f"the {extreme} {failure.of} was {value:.6g}, and the threshold is "
            f"{failure.threshold:g}: can it be reached?"
        )

    def _computed(self, u: np.ndarray, with_gradient: bool) -> dict[str, Any]:
        """What a program computes of some points, which are counted."""
        if self.left < len(u):
            raise ExhaustedError
        values = self._evaluated(u, with_gradient)
        self.trajectories += len(u)
        self.lost += int(values["lost"].sum())
        finite = values["margin"][np.abs(values["margin"]) < self.margin.scale]
        self.nearest = min(self.nearest, float(finite.min(initial=inf)))
        return values

    def _evaluated(self, u: np.ndarray, with_gradient: bool) -> dict[str, Any]:
        member, lanes = self.margin.member, GRADIENT_LANES
        if not with_gradient:
            lanes = _LANES if jax.default_backend() == "cpu" else self.block
        variables = self.sampler.variables(self.columns(u), len(u))
        varying, shared = inputs_of(variables, member.dtype, -len(u) % lanes)
        parts = []
        for first in range(0, len(u), lanes):
            if self.stop():
                raise StoppedError
            part = jax.tree.map(lambda x, k=first: x[k : k + lanes], varying)
            with errors_as_problems():
                quick = member.may_skip_assembly
                values = self._program(part, shared, with_gradient, not quick)
                if quick and not np.asarray(values["met"]).all():
                    values = self._program(part, shared, with_gradient, True)
            parts.append(jax.device_get(values))
        whole: dict[str, Any] = jax.tree.map(lambda *x: np.concatenate(x)[: len(u)], *parts)
        return whole

    @cached_property
    def _program(self) -> Callable[..., Any]:
        """The compiled function of the draws of some lanes."""

        def compute(varying: Any, shared: Any, with_gradient: bool, assembled: bool) -> Any:
            def margin_of(draws: Any) -> Any:
                return self.margin.of(merged(shared, draws), assembled)

            def one(draws: Any) -> Any:
                if not with_gradient:
                    margin, known = margin_of(draws)
                    return {"margin": margin, "lost": known["lost"], "met": known["met"]}
                (margin, known), gradient = jax.value_and_grad(margin_of, has_aux=True)(draws)
                return {"margin": margin, "gradient": gradient, **known}

            return jax.vmap(one)(varying)

        return jax.jit(compute, static_argnums=(2, 3))


def _slope(law: Law, z: np.ndarray) -> np.ndarray:
    """Derivatives of the quantiles with respect to z: φ(z) / f(x), zero for discrete values."""
    if law.is_discrete:
        return np.zeros_like(z)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.exp(-(z**2) / 2 - _LOG_ROOT - law.logpdf(at_normal(law, z)))
    return np.where(np.isfinite(values), values, 0.0)


def limit_state_of(study: Study, folder: Path) -> LimitState:
    """The limit state of a study that has a failure, after all checks."""
    failure = study.failure
    assert failure is not None
    bare = replace(study, block=study.block or _BLOCK, statistics={}, store="all")
    plan = planned(bare, folder)
    require_quantity(failure, plan.study, plan.subject)
    if not plan.sampler.drawn:
        message = "must draw a variable: without one, a failure is certain or impossible"
        raise refuse("parameters", message)
    motion = with_steps(plan.study, plan.subject, plan.sampler)
    return LimitState(Margin(motion, plan.subject, failure), plan.sampler, failure.most)
