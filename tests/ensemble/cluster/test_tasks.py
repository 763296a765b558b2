"""The map over workers: lost workers, slow workers, and a lost scheduler."""

from collections.abc import Iterator
from concurrent.futures import CancelledError
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from distributed import KilledWorker

from jaxmech.ensemble.cluster import tasks as module
from jaxmech.ensemble.cluster.connect import _Keeper
from jaxmech.ensemble.cluster.tasks import ClusterError, Tasks, computed, pickled
from tests.ensemble.cluster.crews import Crew


def test_results_come_in_the_order_of_the_items() -> None:
    crew = Crew(3, seconds=lambda item, again: 0.02 * (item[0] % 3))
    assert list(Tasks(crew).map(lambda x: x * x, range(20))) == [x * x for x in range(20)]
    assert crew.most_open <= 6  # two for each worker, whatever there is to do


def test_items_are_taken_when_they_are_needed() -> None:
    taken = list[int]()

    def items() -> Iterator[int]:
        for k in range(100):
            taken.append(k)
            yield k

    results = Tasks(Crew(1)).as_done(str, items())
    assert next(results) == (0, "0")
    assert len(taken) <= 3


@pytest.mark.parametrize(("losses", "told"), [(2, False), (1, True)])
def test_items_of_lost_workers_are_recomputed(losses, told) -> None:
    left = [2]

    def function(item: int) -> int:
        if item == 3 and left[0]:
            left[0] -= 1
            raise KilledWorker("task", SimpleNamespace(address="tcp://lost:1"), 3)
        return item

    found = Tasks(Crew(), losses=losses).as_done(function, range(6))
    if told:
        with pytest.raises(
            ClusterError, match="too many workers were lost while they ran the same task"
        ):
            list(found)
    else:
        assert sorted(found) == [(k, k) for k in range(6)]


def test_a_lost_scheduler_is_reported() -> None:
    def function(item: int) -> int:
        raise CancelledError

    with pytest.raises(ClusterError, match="the same command resumes from them"):
        list(Tasks(Crew()).as_done(function, [1]))


def test_errors_of_a_task_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(Tasks(Crew()).as_done(lambda x: 1 // x, [1, 0]))


def test_after_a_stop_running_items_are_awaited() -> None:
    stop = [False]
    crew = Crew(2, seconds=lambda item, again: 0.01)
    found = []
    for item, _ in Tasks(crew).as_done(str, range(100), lambda: stop[0]):
        found.append(item)
        stop[0] = True
    assert sorted(found) == sorted(crew.given)
    assert len(found) <= 5


def test_lost_workers_are_reported_and_restarted(monkeypatch) -> None:
    monkeypatch.setattr(module, "_COUNT", 0.0)
    told, crew = list[str](), Crew(0)

    def revive() -> None:
        crew.count = 1 if told else crew.count

    tasks = Tasks(crew, waiting=told.append, revive=revive)
    assert tasks.workers == 0
    assert told == []  # none were there yet
    crew.count = 2
    assert tasks.workers == 2
    crew.count = 0
    assert tasks.workers == 0
    assert told == ["all workers are lost; waiting for others"]
    assert tasks.workers == 1


def test_a_worker_that_its_nanny_gives_up_is_replaced() -> None:
    class Nanny:
        def __init__(self, alive: bool) -> None:
            self.process = SimpleNamespace(is_alive=lambda: alive)
            self.closed = False

        async def close(self, timeout: float) -> None:
            self.closed = True

    class Own:
        def __init__(self) -> None:
            self.workers = {0: Nanny(True), 1: Nanny(False)}
            self.worker_spec = {0: {}, 1: {}}
            self.scaled: list[int] = []

        def sync(self, fn, *args) -> None:
            with pytest.raises(StopIteration):
                fn(*args).send(None)

        def scale(self, count: int) -> None:
            self.scaled.append(count)

    own = Own()
    lost, keeper = own.workers[1], _Keeper(own)
    keeper()
    assert set(own.workers) == {0, 1}  # its nanny may be about to start it again
    keeper()
    assert set(own.workers) == {0}
    assert lost.closed
    assert own.scaled == [2, 2]


def test_functions_and_arrays_are_sent_unchanged() -> None:
    factor = np.float64(1 / 3)
    content = pickled((lambda x: x * factor, jnp.float64(1.5)))
    jax.config.update("jax_enable_x64", False)
    try:
        found = computed((0, content, True))
        assert found.dtype == jnp.float64
        assert jax.config.read("jax_enable_x64")
    finally:
        jax.config.update("jax_enable_x64", True)
    assert float(found) == 0.5
