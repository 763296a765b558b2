"""How much a quantity depends on each drawn input: from statistics, or from the members."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmech.ensemble import Results, array_of
from jaxmech.plot import Influence

_LEAST, _MOST = 60, 16_384  # members from which shares are estimated
_IN_A_GROUP = 15  # members with nearby values of an input, at least
_GROUPS = 20
_RESAMPLES = 200
_SECTIONS = {"start_": "", "coordinate_": " at the start", "velocity_": " rate at the start",
             "parameter_": ""}  # fmt: skip
_KEYS = {"start": "start_", "coordinates": "coordinate_", "velocities": "velocity_",
         "parameters": "parameter_"}  # fmt: skip


def influence_from_statistics(
    name: str, asked: Sequence[tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]
) -> Influence | None:
    """Sobol indices of a quantity or, without any, its correlations with the inputs."""
    for kind, draw in (("sobol-indices", _of_sobol), ("covariance", _of_covariance)):
        for settings, values in asked:
            if settings.get("statistic") == kind:
                found = draw(name, values)
                return found.known() if found is not None else None
    return None


def _of_sobol(name: str, values: Mapping[str, np.ndarray]) -> Influence:
    labels = tuple(_label_of_key(str(x)) for x in values["names"])
    parts = (values["total"], values["total_low"], values["total_high"])
    return Influence("share of the variance, total Sobol index", labels, *map(np.asarray, parts))


def _of_covariance(name: str, values: Mapping[str, np.ndarray]) -> Influence | None:
    names = [str(x) for x in values["names"]]
    inputs = [k for k, x in enumerate(names) if x.partition(".")[0] in _KEYS]
    if name not in names or not inputs:
        return None
    row = names.index(name)
    parts = (np.asarray(values[f"correlation{end}"])[row, inputs] for end in ("", "_low", "_high"))
    return Influence("correlation", tuple(_label_of_key(names[k]) for k in inputs), *parts)


def influence_from_members(
    results: Results, values: np.ndarray, good: np.ndarray
) -> Influence | None:
    """Sobol indices of first order of the values of good members, at their indices, both (N,)."""
    kept = np.flatnonzero(np.isfinite(values))[:_MOST]
    return first_order(dict(_inputs(results, good[kept])), values[kept])


def first_order(inputs: Mapping[str, np.ndarray], values: np.ndarray) -> Influence | None:
    """Sobol indices of first order from members of any design; None with too few of them.

    The variance of the means of groups with nearby values of an input, beside the whole variance,
    less what groups of as many random members would have (E. Plischke, "How to compute variance-
    based sensitivity indicators with your spreadsheet software", Environmental Modelling and
    Software 35, 2012). The intervals are those of a bootstrap.

    Args:
        inputs: the values of each input, shape (N,), by name.
        values: the quantity, shape (N,).
    """
    if len(values) < _LEAST or not inputs or not values.std() > 0:
        return None
    y = (values - values.mean()) / values.std()
    count = int(np.clip(len(y) // _IN_A_GROUP, 2, _GROUPS))
    weights = np.random.default_rng(0).poisson(1.0, (_RESAMPLES, len(y))).astype(float)
    weights = np.concatenate([np.ones((1, len(y))), weights])
    shares = np.stack([_shares(x, y, weights, count) for x in inputs.values()], axis=1)
    low, high = np.quantile(shares[1:], (0.025, 0.975), axis=0)
    bias = np.median(shares[1:], axis=0) - shares[0]  # a resample repeats members
    ends = (np.clip(x - bias, 0.0, 1.0) for x in (low, high))
    measure = "share of the variance, Sobol index of first order"
    return Influence(measure, tuple(inputs), np.clip(shares[0], 0.0, 1.0), *ends)


def _shares(x: np.ndarray, y: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """The share of the variance of y between groups by x, for each row of weights."""
    order = np.argsort(np.argsort(x, kind="stable"), kind="stable")
    groups = np.eye(count)[order * count // len(x)]
    n = np.maximum(weights @ groups, 1e-9)
    means = ((weights * y) @ groups) / n
    total = weights.sum(1)
    mean = (weights @ y) / total
    between = (n * (means - mean[:, None]) ** 2).sum(1)
    whole = weights @ y**2 - total * mean**2
    within: np.ndarray = (whole - between) / (total - count)
    return 1.0 - within / (whole / (total - 1))


def _inputs(results: Results, members: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The drawn numbers of some members by label, where each member has its own."""
    for name in sorted(results.group):
        section = next((x for x in _SECTIONS if name.startswith(x)), None)
        if section is not None and array_of(results.group, name).shape == (results.size,):
            values = results.all_of(name)[members]
            if np.ptp(values) > 0:
                yield _label(section, name.removeprefix(section)), values


def _label_of_key(key: str) -> str:
    section, _, name = key.partition(".")
    return _label(_KEYS[section], name) if section in _KEYS else key


def _label(section: str, name: str) -> str:
    return f"{name}{_SECTIONS[section]}"
