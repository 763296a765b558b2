"""Blocks of a limit state on a cluster: the same bits, and what was computed before is kept."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxmech.config.errors import StoppedError
from jaxmech.ensemble import Cluster, Failure, Normal, Study, Times, failure_probability
from jaxmech.ensemble.failure.limit_state import AwayBlocks, limit_state_of
from jaxmech.integrate import FixedSteps

STUDY = Study(
    model="pendulum", size=64, block=128, times=Times(end=1.0, saves=5),
    steps=FixedSteps(per_save=2), start={"theta": Normal(sd=0.3, mean=0.0)},
    failure=Failure(of="x1", above=0.8, method="subset", level=256, coefficient_of_variation=0.3),
)  # fmt: skip


class Parcels:
    """Tasks that go through pickle, as on a cluster, and run here, the last one first."""

    def __init__(self) -> None:
        self.count = 0

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        parcels = [pickle.dumps((function, item)) for item in items]
        self.count += len(parcels)
        results = []
        for parcel in reversed(parcels):
            work, item = pickle.loads(parcel)
            results.append(work(item))
        return results[::-1]


def test_workers_compute_the_same_bits() -> None:
    here, away, tasks = (*(limit_state_of(STUDY, None, Path()) for _ in range(2)), Parcels())
    away.map_blocks = AwayBlocks(tasks.map, STUDY, Path()).map
    u = np.random.default_rng(0).normal(size=(300, 1))
    np.testing.assert_array_equal(here.values(u), away.values(u))
    assert tasks.count == 3
    for first, second in zip(here.with_gradients(u[:20]), away.with_gradients(u[:20]), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (away.trajectories, away.gradients) == (320, 20)


def test_blocks_that_are_stored_are_not_computed_again(tmp_path: Path) -> None:
    u = np.random.default_rng(0).normal(size=(300, 1))
    limit, calls = limit_state_of(STUDY, None, Path()), iter(range(2))
    limit.journal, limit.stop = tmp_path, lambda: next(calls, None) is None
    with pytest.raises(StoppedError):
        limit.values(u)
    assert len([*tmp_path.iterdir()]) == 2
    again, tasks = limit_state_of(STUDY, None, Path()), Parcels()
    again.journal, again.map_blocks = tmp_path, AwayBlocks(tasks.map, STUDY, Path()).map
    values = again.values(u)
    assert tasks.count == 1
    np.testing.assert_array_equal(values, limit_state_of(STUDY, None, Path()).values(u))


@pytest.mark.slow
def test_a_cluster_gives_the_same_result(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    failure_probability(STUDY, tmp_path / "here")
    study = replace(STUDY, cluster=Cluster(scheduler="local:2"))
    failure_probability(study, tmp_path / "away", tell=lambda message: None)
    files = [tmp_path / name / "failure.json" for name in ("here", "away")]
    assert files[0].read_bytes() == files[1].read_bytes()
