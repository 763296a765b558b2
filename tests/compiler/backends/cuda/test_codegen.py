"""The text of GPU kernels: run by the processor it gives the answers of lanes."""

from typing import Any

import jax
import numpy as np
import pytest

from experiments.cuda.cases import GENTLE, case
from experiments.cuda.host import on_host
from experiments.cuda.kernels import running
from jaxmech.models import CATALOGUE

TOLERANCES = {"gradient": 1e-11}  # 1e-13 elsewhere
SINGLE = 1e-5


def relative(ours: Any, expected: Any) -> float:
    """The largest difference of results, relative to the largest number of each."""
    worst = 0.0
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        if x.dtype.kind != "f":
            np.testing.assert_array_equal(x, y)
        elif x.size:
            np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
            difference = np.nanmax(np.abs(x - y), initial=0.0)
            worst = max(worst, difference / max(np.nanmax(np.abs(y), initial=0.0), 1.0))
    return worst


def assert_agrees(name: str, way: str, size: int, dtype: Any = np.float64) -> None:
    one = case(name, way, size, 100, dtype)
    with running(on_host) as found:
        ours = jax.block_until_ready(jax.jit(one.batched)(*one.args))
    assert found
    expected = jax.jit(one.batched)(*one.args)
    tolerance = SINGLE if dtype == np.float32 else TOLERANCES.get(way, 1e-13)
    assert relative(ours, expected) <= tolerance


@pytest.mark.parametrize(
    ("name", "way", "size"),
    [
        ("pendulum", "gradient", 7),
        pytest.param("bead_on_rod", "solution", 13, marks=pytest.mark.slow),
    ],
)
def test_a_rollout(name: str, way: str, size: int) -> None:
    assert_agrees(name, way, size)


def test_a_rollout_in_single_precision() -> None:
    assert_agrees("double_pendulum_angles", "projection", 9, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["forward", "solution", "gradient", "sensitivities"])
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model(name: str, way: str) -> None:
    assert_agrees(name, way, 7)


def test_every_model_has_a_gentle_start() -> None:
    assert GENTLE.keys() >= CATALOGUE.keys()
