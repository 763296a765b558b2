"""Study configurations with one mistake or oddity each, and their expected treatment.

Each mutation sets one key of a good configuration to one value. Whether it is good is decided here,
from what the documentation says of the key, not by the code under test.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

Key = tuple[str, ...]

BASE: dict[str, Any] = {
    "model": "pendulum",
    "size": 6,
    "seed": 3,
    "block": 4,
    "times": {"end": 1.0, "start": 0.0, "saves": 5},
    "method": {"name": "RK4"},
    "steps": {"name": "FixedSteps", "per_save": 2},
    "projection": {"name": "projection", "iterations": 2},
    "save": ["q", "energy"],
    "failed_allowed": 0.5,
    "start": {"theta": {"distribution": "uniform", "low": -1.0, "high": 1.0}, "omega": 0.1},
    "velocities": {"x1": 0.2},
    "parameters": {
        "m": {"distribution": "normal", "sd": 0.1, "relative": True},
        "l": {"distribution": "log-normal", "sigma": 0.1},
        "g": {"distribution": "uniform", "low": 9.0, "high": 10.0},
    },
}
ODD: list[Any] = [
    0, 1, 2, 3, -1, 7, 10**9, 10**12, 10**15, 10**400, -(10**400), 0.0, 0.5, -0.5, 1.5, 1e-300,
    1e300, math.nan, math.inf, -math.inf, True, False, "", "x", "nan", "qr", [], [[]], [1.0],
    [1.0, 2.0], [[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0, 4.0]], ["q"], ["x"], [math.nan],
    [True], {}, {"distribution": "uniform"}, {"distribution": "uniform", "low": 1, "high": 1},
    {"distribution": "uniform", "low": 0.5, "high": 1.0}, {"distribution": "nonsense"},
    {"distribution": "normal", "sd": math.nan}, {"distribution": "normal", "sd": 0.1, "mean": 1e9},
    {"distribution": "normal", "sd": 0.1, "mean": math.inf}, {"distribution": "fixed", "value": 2},
    {"distribution": "fixed", "value": []}, {"distribution": "uniform", "low": 2.0, "high": 3.0},
    {"distribution": "log-normal", "sigma": 0.1, "median": math.inf}, {"name": "none"},
    {"name": "projection", "iterations": 10**6},
    {"name": "baumgarte", "alpha": 1, "beta": math.inf},
    {"name": "baumgarte", "alpha": 1.0, "beta": 5}, {"q": 1}, {"low": 0.0},
]  # fmt: skip


def is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1.7e308


def between(low: float, high: float, kind: Callable[[Any], bool] = is_number) -> Any:
    return lambda x: kind(x) and low <= x <= high


def is_distribution(x: Any) -> bool:
    """A finite number, or a table whose entries make sense together."""
    if is_number(x):
        return True
    if not isinstance(x, dict):
        return False
    rest = {key: value for key, value in x.items() if key != "distribution"}
    match x.get("distribution"):
        case "uniform":
            good = rest.keys() == {"low", "high"} and all(map(is_number, rest.values()))
            return good and rest["low"] < rest["high"]
        case "normal":
            known = rest.keys() <= {"sd", "mean", "relative"} and is_number(rest.get("mean", 1))
            zero = rest.get("relative") is True and rest.get("mean", 1) == 0
            good = isinstance(rest.get("relative", True), bool) and not zero
            return known and good and is_number(rest.get("sd")) and rest["sd"] >= 0
        case "log-normal":
            known = rest.keys() <= {"sigma", "median"} and is_number(rest.get("median", 1))
            good = is_number(rest.get("sigma")) and rest["sigma"] >= 0
            return known and good and rest.get("median", 1) > 0
        case "fixed":
            return rest.keys() == {"value"} and is_number(rest["value"])
    return False


def is_control(x: Any) -> bool:
    rest = {k: v for k, v in x.items() if k != "name"} if isinstance(x, dict) else {}
    match x.get("name") if isinstance(x, dict) else None:
        case "none":
            return not rest
        case "baumgarte":
            return rest.keys() == {"alpha", "beta"} and all(
                is_number(v) and v >= 0 for v in rest.values()
            )
        case "projection":
            count = rest.get("iterations", 2)
            return rest.keys() <= {"iterations"} and is_int(count) and 1 <= count <= 100
    return False


def one_of(*names: str) -> Callable[[Any], bool]:
    return lambda x: x in names and isinstance(x, str)


# What each key may be; a study within these bounds fits the memory of any machine.
GOOD: dict[Key, Callable[[Any], bool]] = {
    ("model",): one_of("pendulum"),
    ("size",): between(1, 10**5, is_int),
    ("seed",): between(0, math.inf, is_int),
    ("block",): between(1, 10**5, is_int),
    ("failed_allowed",): between(0, 1),
    ("save",): lambda x: x == [] or x == ["q"],
    ("times", "end"): lambda x: is_number(x) and x > 0,
    ("times", "start"): lambda x: is_number(x) and x < 1.0,
    ("times", "saves"): between(2, 10**5, is_int),
    ("method", "name"): one_of("RK4"),
    ("steps", "name"): one_of("FixedSteps"),
    ("steps", "per_save"): between(1, 10**8, is_int),
    ("projection",): is_control,
    ("projection", "iterations"): between(1, 100, is_int),
    ("start", "theta"): is_distribution,
    ("start", "omega"): is_distribution,
    ("start", "phi"): lambda x: False,
    ("velocities", "x1"): is_distribution,
    ("velocities", "y9"): lambda x: False,
    ("parameters", "m"): is_distribution,
    ("parameters", "m[0]"): lambda x: False,
    ("parameters", "l"): is_distribution,
    ("parameters", "g"): is_distribution,
    ("parameters", "g", "low"): lambda x: is_number(x) and x < 10.0,
    ("parameters", "m", "sd"): lambda x: is_number(x) and x >= 0,
    ("sise",): lambda x: False,
}
NEEDS_MEAN = {("velocities", "x1")}  # names without a default value
BORDER: set[tuple[Key, Any]] = {
    (("size",), 10**9),
    (("block",), 10**9),
    (("times", "saves"), 10**9),
}


class Mutation(NamedTuple):
    """One changed key: the configuration, the key, and whether it is still a good study."""

    data: dict[str, Any]
    key: Key
    value: Any
    good: bool


def mutation(
    key: Key,
    value: Any,
    good: dict[Key, Callable[[Any], bool]] = GOOD,
    base: dict[str, Any] = BASE,
) -> Mutation:
    """The configuration with one key set, and whether it is good."""
    return Mutation(
        changed(key, value, base), key, value, good[key](value) and mean_given(key, value)
    )


def depends_on_the_machine(case: Mutation) -> bool:
    return is_number(case.value) and (case.key, case.value) in BORDER


MUTATIONS = st.builds(mutation, st.sampled_from(list(GOOD)), st.sampled_from(ODD)).filter(
    lambda case: not depends_on_the_machine(case)
)


def mean_given(key: Key, value: Any) -> bool:
    """Where there is no default value, a normal variable needs a mean."""
    if key not in NEEDS_MEAN or not isinstance(value, dict):
        return True
    needed = {"normal": "mean", "log-normal": "median"}.get(value.get("distribution", ""))
    return needed is None or needed in value


def changed(key: Key, value: Any, base: dict[str, Any] = BASE) -> dict[str, Any]:
    """The good configuration with one key set."""
    data = {k: dict(v) if isinstance(v, dict) else v for k, v in base.items()}
    table = data
    for name in key[:-1]:
        inner = table[name]
        table[name] = dict(inner) if isinstance(inner, dict) else {}
        table = table[name]
    table[key[-1]] = value
    return data
