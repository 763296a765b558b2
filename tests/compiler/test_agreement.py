"""Batches as lanes agree with plain `vmap`: states, audits, failures, gradients."""

import numpy as np
import pytest

from jaxmech import Status
from jaxmech.models import CATALOGUE
from tests.compiler.both_ways import GENTLE, POLICIES, SEGMENTS, SIZES, Arrays, computed

# Without constraints, with holonomic and nonholonomic ones, and with a singular M.
SHORT = ["pendulum", "double_pendulum_angles", "free_body", "chaplygin_sleigh"]
# What QR does depends on the rows alone; with SVD nothing runs as lanes but the loops around it.
SOME = ["double_pendulum QR", "double_pendulum SVD"]
EXACT = ("rank", "status", "t_failed")
ROUND_OFF = 5e-15  # of a residual
FALLBACKS = {f"{name} SVD": "the primitive `svd`" for name in GENTLE}
FALLBACKS["double_pendulum_angles SVD"] = ""  # no constraints, nothing to decompose


def both(cases: list[str]) -> tuple[Arrays, Arrays]:
    """Compute cases as lanes and under vmap, and check that they ran as such."""
    lanes, vmap = (computed(cases, lanes) for lanes in (True, False))
    for case in cases:
        assert vmap.pop(f"{case}/as").size == 0
        reasons = set(lanes.pop(f"{case}/as"))
        assert reasons - {""} == {FALLBACKS.get(case, "")} - {""}, case
    assert lanes.keys() == vmap.keys()
    return lanes, vmap


def differences(ours: Arrays, expected: Arrays, tolerance: float = 1e-12) -> list[str]:
    """List the differences relative to each trajectory, those of residuals to its velocities."""
    found = []
    for key, y in expected.items():
        x, (case, what) = ours[key], key.split("/")
        assert x.shape == y.shape, key
        name, is_residual = what.split()[0], "residual" in what
        scaling = expected[f"{case}/{what.replace(name, 'v')}"] if is_residual else y
        relative = np.abs(x - y).T / np.maximum(largest(scaling), 1.0)
        allowed = 0.0 if name in EXACT else ROUND_OFF if is_residual else tolerance
        worst = np.nan_to_num(relative, nan=0.0).max(initial=0.0)
        if worst > allowed or (np.isnan(x) != np.isnan(y)).any():
            found.append(f"{key}: {worst:.1e}")
    return found


def largest(x: np.ndarray) -> np.ndarray:
    size = np.abs(np.where(np.isnan(x), 0.0, x))
    return size.max(axis=tuple(range(1, x.ndim)), initial=0.0)


def test_every_model_has_a_gentle_start() -> None:
    assert GENTLE.keys() == CATALOGUE.keys()


@pytest.mark.slow
def test_models() -> None:
    """Models agree over many steps, with failing members and other solvers and policies.

    And a pendulum for each `Status` that a pendulum can end in.
    """
    solved = [*(f"{name} LDL" for name in SHORT), *SOME]
    lanes, vmap = both([*solved, *POLICIES, "endings"])
    assert differences(lanes, vmap) == []
    for case in (*solved, *POLICIES):
        expected = {Status.OK, Status.NONFINITE, Status.INCONSISTENT}
        free = {Status.INCONSISTENT} if "angles" in case else set()
        assert set(vmap[f"{case}/status"]) == expected - free, case
    assert set(vmap["endings/status"]) == set(range(Status.NONIDEAL_FAILED))
    assert (vmap["endings/t_failed"] > 1.0).any()


@pytest.mark.slow
@pytest.mark.as_users
def test_batches() -> None:
    """Batches of any size and of parameters and times agree, also when nested."""
    lanes, vmap = both(["sizes", "layouts"])
    assert differences(lanes, vmap) == []
    for size in SIZES:
        assert lanes[f"sizes/status {size}"].shape == (size,)
    assert lanes["layouts/q table"].shape == lanes["layouts/q other table"].shape == (5, 5, 3, 2)


@pytest.mark.slow
def test_gradients() -> None:
    """Gradients by q0, v0, parameters and ts agree, with failures, and for every segment."""
    first, *others = (f"slopes pendulum {segment}" for segment in SEGMENTS)
    lanes, vmap = both([first, "slopes rolling_wheel"])
    assert differences(lanes, vmap, 1e-10) == []
    for other in others:
        again = computed([other], lanes=True)
        assert set(again.pop(f"{other}/as")) == {""}
        expected = {f"{other}/{key.split('/')[1]}": x for key, x in lanes.items() if first in key}
        assert differences(again, expected, 1e-12) == []
