"""Mutations of a study with events, statistics, adaptive steps and a cluster, and their treatment.

As in `mutations`: what each key may be is decided here, from what the documentation says of it.
"""

import math
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.ensemble.mutations import BASE, ODD, Key, between, is_int, is_number, mutation

EVENTFUL: dict[str, Any] = {
    **BASE,
    "store": "statistics",
    "method": {"name": "DormandPrince8"},
    "steps": {"name": "Adaptive", "rtol": 1e-4, "max_steps": 200},
    "events": {"low": {"of": "x2", "level": -0.9, "direction": -1, "keep": 3}},
    "statistics": {
        "mean": {"statistic": "moments", "of": "energy", "confidence": 0.9},
        "right": {"statistic": "probability", "of": "x1", "above": 0.2},
        "when": {"statistic": "first-passage", "of": "low"},
        "bins": {"statistic": "histogram", "of": "x1", "low": -1.0, "high": 1.0, "bins": 10},
        "band": {"statistic": "quantiles", "of": "x1", "at": [0.5], "bins": 32},
        "both": {"statistic": "covariance", "of": ["energy_drift", "low_count"]},
        "worst": {"statistic": "worst", "of": "energy_drift", "keep": 2},
    },
    "until": {"quantity": "right", "half_width": 0.1, "at_least": 4},
    "cluster": {"scheduler": "tcp://127.0.0.1:9", "wait": 0.5, "allowed_failures": 3},
}
MORE_ODD: list[Any] = [
    *ODD, 64, 10**7, 10**10, 2**31, "x1", "x2", "energy", "low", "wilson", "right", "band",
    "local:two", "local:0", "local:99999999999999999999", "tcp://127.0.0.1:9",
    "tcp://h:99999", "tcp://h:0", "tcp://h", "tls://[::1]:8786", "file:", "udp://h:1",
    "4 GiB", "4", "01:00:00", "one hour", ["energy_drift"], ["status", "x1"], [0.1, 0.9],
    [0.5, 2.0], -0.9, 1e17,
]  # fmt: skip
QUANTITIES = ("q", "x1", "x2", "energy")
SCHEDULERS = ("tcp://127.0.0.1:9", "tls://[::1]:8786")


def never(value: Any) -> bool:
    return False


def is_one_of(*names: str) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, str) and x in names


def is_list_of(good: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and bool(x) and all(map(good, x))


is_confidence = between(math.nextafter(0, 1), math.nextafter(1, 0))
is_count = between(1, 10**400, is_int)
is_quantity = is_one_of(*QUANTITIES)
GOOD: dict[Key, Callable[[Any], bool]] = {
    ("steps", "rtol"): lambda x: is_number(x) and x > 0,
    ("steps", "max_steps"): between(1, 10**9, is_int),
    ("events", "low", "of"): is_one_of("x1", "x2"),
    ("events", "low", "level"): is_number,
    ("events", "low", "direction"): between(-1, 1, is_int),
    ("events", "low", "terminal"): lambda x: isinstance(x, bool),
    ("events", "low", "keep"): between(1, 10**5, is_int),
    ("events", "low", "kep"): never,
    ("events", "low", "restitution"): lambda x: is_number(x) or isinstance(x, str),
    ("events", "low"): never,
    ("events", "x"): never,
    ("statistics", "mean", "statistic"): is_one_of("moments"),
    ("statistics", "mean", "of"): is_quantity,
    ("statistics", "mean", "confidence"): is_confidence,
    ("statistics", "right", "above"): is_number,
    ("statistics", "right", "below"): never,
    ("statistics", "right", "interval"): is_one_of("wilson", "clopper-pearson"),
    ("statistics", "when", "of"): is_one_of("low"),
    ("statistics", "bins", "low"): lambda x: is_number(x) and x < 1.0,
    ("statistics", "bins", "high"): lambda x: is_number(x) and x > -1.0,
    ("statistics", "bins", "bins"): between(1, 10**5, is_int),
    ("statistics", "band", "at"): is_list_of(between(0, 1)),
    ("statistics", "band", "bins"): between(4, 10**5, is_int),
    ("statistics", "both", "of"): is_list_of(is_one_of("energy_drift", "status", *QUANTITIES)),
    ("statistics", "worst", "of"): is_quantity,
    ("statistics", "worst", "keep"): between(1, 10**4, is_int),
    ("statistics", "worst", "smallest"): lambda x: isinstance(x, bool),
    ("until", "quantity"): is_one_of("right"),
    ("until", "half_width"): lambda x: is_number(x) and x > 0,
    ("until", "at_least"): is_count,
    ("cluster", "scheduler"): is_one_of(*SCHEDULERS),
    ("cluster",): is_one_of(*SCHEDULERS),
    ("cluster", "workers"): never,
    ("cluster", "memory"): never,
    ("cluster", "wait"): lambda x: is_number(x) and x >= 0,
    ("cluster", "allowed_failures"): between(0, 10**400, is_int),
    ("cluster", "walltime"): is_one_of("01:00:00"),
    ("store",): lambda x: x == [] or x == ["q"],
}  # fmt: skip


EVENTFUL_MUTATIONS = st.builds(
    mutation, st.sampled_from(list(GOOD)), st.sampled_from(MORE_ODD), st.just(GOOD),
    st.just(EVENTFUL),
)  # fmt: skip
