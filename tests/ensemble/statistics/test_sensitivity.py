"""Sobol indices against closed forms, and against those of scipy on the same numbers."""

import numpy as np
import pytest
from scipy.stats import sobol_indices, uniform

from jaxmech.ensemble.draws.designs import Points
from jaxmech.ensemble.statistics import SobolIndices
from tests.ensemble.statistics.helpers import result, sample

NAMES = ["x1", "x2", "x3"]


def ishigami(x: np.ndarray) -> np.ndarray:
    """Ishigami and Homma, "An importance quantification technique ...", ISUMA 1990."""
    return np.sin(x[0]) + 7 * np.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * np.sin(x[0])


def exact() -> tuple[np.ndarray, np.ndarray]:
    """First-order and total indices of that function with a = 7 and b = 0.1."""
    a, b, pi = 7.0, 0.1, np.pi
    v1 = 0.5 * (1 + b * pi**4 / 5) ** 2
    v2, v13 = a**2 / 8, b**2 * pi**8 * (1 / 18 - 1 / 50)
    variance = v1 + v2 + v13
    return np.array([v1, v2, 0]) / variance, np.array([v1 + v13, v2, v13]) / variance


def drawn(groups: int) -> dict[str, np.ndarray]:
    points = Points("saltelli", 0, 5 * groups, NAMES)
    u = points.rows(0, 5 * groups)
    return dict(zip(NAMES, np.pi * (2 * u.T - 1), strict=True))


@pytest.mark.slow
def test_the_indices_of_ishigami_are_within_their_intervals() -> None:
    x = drawn(4096)
    values = {"y": ishigami(np.stack([*x.values()])), **x}
    found = result(SobolIndices(of="y"), sample(values), 5 * 1000, 5 * 3000)
    for name, truth in zip(("first_order", "total"), exact(), strict=True):
        assert np.abs(found[name] - truth).max() < 0.02
        assert np.all((found[f"{name}_low"] <= truth) & (truth <= found[f"{name}_high"]))
        assert np.all(found[f"{name}_high"] - found[f"{name}_low"] < 0.15)
    assert found["groups"] == 4096


def test_they_are_those_of_scipy() -> None:
    x = drawn(256)
    y = ishigami(np.stack([*x.values()]))
    found = result(SobolIndices(of="y"), sample({"y": y, **x}))
    roles = y.reshape(-1, 5)
    given = {
        "f_A": roles[:, 0][None], "f_B": roles[:, 1][None], "f_AB": roles[:, 2:].T[:, None],
    }  # fmt: skip
    peer = sobol_indices(func=given, n=256, dists=[uniform(-np.pi, 2 * np.pi)] * 3)
    assert found["first_order"] == pytest.approx(np.ravel(peer.first_order), abs=1e-12)
    assert found["total"] == pytest.approx(np.ravel(peer.total_order), abs=1e-12)


def test_a_group_that_is_not_whole_is_left_out() -> None:
    x = drawn(64)
    y = ishigami(np.stack([*x.values()]))
    good = np.full(320, True)
    good[7], y[7] = False, np.nan
    found = result(SobolIndices(of="y"), sample({"y": y, **x}, good))
    assert found["groups"] == 63
    assert np.isfinite(found["total"]).all()
