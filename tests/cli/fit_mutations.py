"""Configurations of fits and CSV files with one change each, and the messages they cause.

Each changed input must either be accepted, or be refused with a message that names the key, or the
file and its line. A traceback counts as a failure.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w
from hypothesis import strategies as st

from jaxmech.cli.fit.build import settings, subjects
from jaxmech.cli.fit.study import FitStudy
from jaxmech.config.errors import StudyError
from jaxmech.config.frames import TableError
from jaxmech.config.toml import ConfigError, read
from jaxmech.identify.data.table import read_table
from jaxmech.identify.problem.parameters import parameters

Keys = tuple[str | int, ...]
MODEL = """
import jax.numpy as jnp
import jaxmech as jm

def swing(arms=1):
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v + p["gravity"] * jnp.cos(q[0]), coordinates=("theta",)
    )
    return jm.identify.Identifiable(system, {"gravity": 8.0, "arm": {"l": 1.0}, "J": jnp.eye(3)})
"""
SWINGS = "swing,t,theta,omega\n" + "".join(
    f"{swing},{0.1 * k:.1f},{0.3 * np.cos(3 * 0.1 * k) * swing:.4f},{0.01 * k:.3f}\n"
    for swing in (1, 2, 3)
    for k in range(6)
)
PLAIN: dict[str, Any] = {
    "model": "swing.py:swing",
    "initial_states": "free",
    "model_options": {"arms": 1},
    "data": {
        "file": "swings.csv", "observed": ["theta"], "q0": ["theta"], "v0": ["omega"], "time": "t",
        "recording": "swing", "validation": ["3"], "stride": 1, "noise_sd": 0.002,
        "start_sd": [0.002, 0.01],
    },
    "parameters": {
        "free": ["gravity", "arm"], "start": {"gravity": 9.0}, "bounds": {"gravity": [0.0, 20.0]},
        "prior": {"arm.l": [1.0, 0.1]},
    },
    "optimizer": {"name": "trust-region", "evaluations": 20, "tolerance": 1e-8},
    "horizon": {"length": 0.3, "continuity": 0.01},
    "method": {"name": "RK4"},
    "steps": {"name": "FixedSteps", "per_save": 1, "max_step": 0.05},
    "multistart": {"count": 8, "spread": 0.5, "refine": 2, "seed": 0},
}  # fmt: skip
ADAM = PLAIN | {
    "optimizer": {"name": "adam", "rate": 0.01, "iterations": 9, "patience": 3, "seed": 0}
}
CHOSEN = PLAIN | {
    "candidates": [{"name": "a", "start": {"arm": {"l": 2.0}}}, {"name": "b", "free": ["arm"]}],
    "choice": {"folds": 2, "score": "recorded", "rule": "minimum"},
}
DEEP, DEEPER = "as deep as an array can be", "deeper than a reader can go"
DEPTHS = {DEEP: 80, DEEPER: 3000}
VALUES: tuple[Any, ...] = (
    -1, 0, 3, 10**30, 0.5, -0.5, 1e308, float("inf"), float("nan"), True, "", "thta", "a\0b", "*",
    "../x", [], [0.1], [0.1, 0.2], [-1.0, 1.0], [1.0, -1.0], [[0.1], [0.1, 0.2]], [["a"]], DEEP,
    DEEPER, {}, {"a": 1}, {"gravity": [[1.0], [2.0, 3.0]]}, [{}], ["theta", "theta"], [0], [9],
    ["t"], [True],
    {"gravity": DEEP}, {"gravity": [10**400, 1]}, {"J": [1.0, 2.0]}, {"gravity": -1.0}, -(10**30),
)  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e309


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return _is_positive(value) and isinstance(value, int)


def _is_seed(value: Any) -> bool:
    return _is_count(value) or (value == 0 and isinstance(value, int))


def _is_interval(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[0] < 9 < value[1]


MAY_BE: dict[str, Callable[[Any], bool]] = {  # what a key may be set to, of the values above
    "arm.l": lambda x: x == [0.1, 0.2],
    "arms": lambda x: True,
    "bounds": lambda x: x == {},
    "candidates": lambda x: x == [],
    "choice": lambda x: x == {},
    "continuity": _is_positive,
    "count": lambda x: _is_count(x) and x > 1,
    "folds": lambda x: _is_count(x) and x > 1,
    "free": lambda x: x == [],
    "gravity": lambda x: _is_number(x) and 0 < x < 20,
    "iterations": _is_count,
    "length": _is_positive,
    "max_step": _is_positive,
    "model_options": lambda x: x == {},
    "name": lambda x: isinstance(x, str) and x not in ("b", ""),
    "noise_sd": lambda x: _is_positive(x) or x in ([9], [0.1]),
    "patience": _is_count,
    "per_save": _is_count,
    "prior": lambda x: x in ({}, {"J": [1.0, 2.0]}),
    "q0": lambda x: x == [],
    "rate": _is_positive,
    "refine": lambda x: _is_count(x) and x <= 8,
    "seed": _is_seed,
    "spread": _is_positive,
    "start": lambda x: x == {},
    "start_sd": lambda x: x == [0.1, 0.2],
    "steps": lambda x: x == {},
    "stride": lambda x: _is_count(x) and x < 6,
    "tolerance": _is_positive,
    "v0": lambda x: x == [],
    "validation": lambda x: x == [],
}


class Case(NamedTuple):
    """A configuration and a CSV file, and what was changed in one of them.

    Attributes:
        config: the text of the configuration.
        table: the CSV file.
        changed: the key of the configuration, or "" where the CSV file was changed.
        value: what it is now.
    """

    config: str
    table: bytes
    changed: str
    value: Any


def _paths(table: Any, path: Keys = ()) -> Iterator[Keys]:
    """The keys of a configuration, and those of its inner tables."""
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        yield (*path, key)
        if isinstance(value, dict) or key == "candidates":
            yield from _paths(value, (*path, key))


def _changed(config: dict[str, Any], path: Keys, value: Any) -> Case:
    config = deepcopy(config)
    inner: Any = config
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    name = ".".join(key for key in path if isinstance(key, str))
    return Case(written(config), SWINGS.encode(), name, value)


KEYS = [
    (config, path)
    for config in (PLAIN, ADAM, CHOSEN)
    for path in _paths(config)
    if isinstance(path[-1], str)
]
CONFIGURATIONS = st.builds(
    lambda key, value: _changed(*key, value), st.sampled_from(KEYS), st.sampled_from(VALUES)
)
PIECES = (b'"', b",", b";", b"\t", b"\n", b"\r", b"\0", b"nan", b"inf", b"1e999", b"-", b"#",
          b"\xff", b"\xc2\x85", b"\x0c", b'","', b"1,5", b"theta", b" ", b"0x1F", b"1_0",
          b"9" * 400, b"\xef\xbb\xbf", b'"\n')  # fmt: skip
EDITS = st.tuples(
    st.integers(0, len(SWINGS) - 1), st.integers(0, 12), st.sampled_from(PIECES) | st.binary()
)


@st.composite
def tables(draw: st.DrawFn) -> Case:
    """CSV files in which up to three pieces are replaced or put in."""
    text = bytearray(SWINGS.encode())
    for place, length, piece in draw(st.lists(EDITS, min_size=1, max_size=3)):
        text[place : place + length] = piece
    return Case(written(PLAIN), bytes(text), "", bytes(text[:20]))


def verdict(case: Case, folder: Path) -> str:
    """The fault in the message for a case; empty if it is right."""
    (folder / "swing.py").write_text(MODEL)
    (folder / "fit.toml").write_text(case.config)
    (folder / "swings.csv").write_bytes(case.table)
    try:
        _checked(folder)
    except (ConfigError, StudyError, TableError, ValueError) as error:
        return _misnamed(case, error)
    except Exception as error:  # noqa: BLE001 - that it is one is what is wrong
        return f"{type(error).__name__}: {error}"
    *_, name = case.changed.split(".")
    name = "arm.l" if name == "l" else name
    return "" if not case.changed or MAY_BE.get(name, _never)(case.value) else "is taken"


def _never(value: Any) -> bool:
    return False


def _checked(folder: Path) -> None:
    """Run all checks that `jaxmech fit` makes before it computes."""
    study = read(folder / "fit.toml", FitStudy)
    found = subjects(study, folder)
    read_table(study.data, folder)
    settings(study)
    for one in found.by_name.values():
        parameters(one.params, free=one.free, bounds=one.bounds, prior=one.prior)


def _misnamed(case: Case, error: Exception) -> str:
    """The fault of a message that names neither the key nor the file; empty if there is none."""
    text = str(error)
    kind = type(error).__name__
    if kind not in ("ConfigError", "StudyError", "TableError") and not text.startswith(
        "Argument `"
    ):
        return f"{kind}: {text}"
    if not case.changed:
        return "" if "swings.csv" in text or kind == "StudyError" else f"names no file: {text}"
    if "nested too deeply" in text and case.value == DEEPER:
        return ""
    *_, name = case.changed.split(".")
    return "" if name.partition("[")[0] in text else f"does not name {case.changed}: {text}"


def written(config: Any) -> str:
    """The configuration as TOML, with arrays that no writer could nest."""
    text = tomli_w.dumps(config)
    for mark, depth in DEPTHS.items():
        text = text.replace(f'"{mark}"', "[" * depth + "]" * depth)
    return text
