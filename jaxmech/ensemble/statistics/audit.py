"""`Audit`: the outcomes of all trajectories, where they are not stored one by one."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.solution import TOO_COARSE
from jaxmech.status import Status, succeeded

AUDIT = "audit"  # name of the statistic of the statuses, where these are not stored
WORST = {
    "position_residual": "worst_position_residual",
    "velocity_residual": "worst_velocity_residual",
    "energy_drift": "energy_drift",
    "integration_error": "integration_error",
}
_SHOWN = 20  # failed trajectories whose numbers are kept


@dataclass(frozen=True)
class Audit(AbstractStatistic):
    """Counts of statuses, and the worst residuals, drift and error of those that did not fail."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values in the audit of `simulate`."""
        return ("status", "rank", "missed_events", *WORST.values())

    def of_sample(self, sample: Sample) -> State:
        """The counts of a sample, and the worst values."""
        values, status = sample.values, sample.values["status"]
        good = sample.real & succeeded(status)
        bad = sample.real & ~good
        # The first failed ones in their order, whatever the block holds before them.
        order = jnp.argsort(~bad, stable=True)[:_SHOWN]
        numbers = jnp.where(bad[order], sample.number[order], -1)
        numbers = jnp.concatenate([numbers, jnp.full(_SHOWN, -1, numbers.dtype)])[:_SHOWN]
        worst = {
            name: jnp.where(good & ~jnp.isnan(values[name]), values[name], -jnp.inf).max()
            for name in WORST.values()
        }
        counts = (status == jnp.array(list(map(int, Status)))[:, None]) & sample.real
        coarse = good & (values["integration_error"] > TOO_COARSE)
        return {
            "count": counts.sum(1).astype(numbers.dtype),
            "coarse": coarse.sum().astype(numbers.dtype),
            "missing": (good & (values["missed_events"] > 0)).sum().astype(numbers.dtype),
            "rank": jnp.where(good, values["rank"], 2**31 - 1).min().astype(jnp.int32),
            "failed": numbers,
            **worst,
        }

    def merge(self, first: State, second: State) -> State:
        """Add the counts, and keep the worst values of both."""
        failed = jnp.concatenate([first["failed"], second["failed"]])
        first_failed = failed[jnp.argsort(failed < 0, stable=True)][:_SHOWN]
        return {
            "count": first["count"] + second["count"],
            "coarse": first["coarse"] + second["coarse"],
            "missing": first["missing"] + second["missing"],
            "rank": jnp.minimum(first["rank"], second["rank"]),
            "failed": first_failed,
            **{name: jnp.maximum(first[name], second[name]) for name in WORST.values()},
        }

    def result(self, state: State) -> StatisticResult:
        """The figures of a summary; None where unknown."""
        x = host(state)
        worst = {
            key: float(x[name]) if np.isfinite(x[name]) else None for key, name in WORST.items()
        }
        good = int(x["count"][[succeeded(status) for status in Status]].sum())
        return {
            "count": {s.name: int(n) for s, n in zip(Status, x["count"], strict=True)},
            "too_coarse": int(x["coarse"]),
            "with_missed_events": int(x["missing"]),
            "smallest_rank": int(x["rank"]) if good else None,
            "failed": x["failed"][x["failed"] >= 0].tolist(),
            "worst": worst,
        }
