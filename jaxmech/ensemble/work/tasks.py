"""`Tasks`: a map over the workers of a Dask cluster that survives the loss of some of them."""

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import jax

from jaxmech.config.errors import InputError

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")
Result = TypeVar("Result")
_AHEAD = 2  # tasks that each worker has or waits for
_LOOK = 0.25  # seconds between looks at whether to stop
_COUNT = 5.0  # seconds between counts of the workers
_PATIENCE = 30.0  # seconds after which a request to the scheduler is repeated
_SLOW = 3.0  # times the median: slower tasks are computed a second time by a free worker
_LEAST = 2.0  # seconds after which a task may be slow


class ClusterError(InputError):
    """A cluster cannot be used, or was lost; the text names the remedy."""


@dataclass
class _Task:
    """An item with its future, and a second one if the first is slow."""

    item: Any
    begun: float = field(default_factory=time.monotonic)
    futures: "list[Future[Any]]" = field(default_factory=list)
    lost: int = 0


@dataclass
class Tasks:
    """A map over the workers of a cluster.

    A task whose worker is lost runs again on another one. Once all tasks have been sent, idle
    workers also run the slow ones again. So the function must return the same result wherever and
    however often it runs, and repeating its side effects must do no harm.
    """

    client: "Client"  # of the cluster
    losses: int = 20  # how often a task may be given up because its workers were lost
    # the item that a second worker is given in place of a slow one
    again: Callable[[Any], Any] = lambda item: item
    waiting: Callable[[str], None] = lambda text: None  # called when all workers are lost
    # is called every few seconds, to start lost workers again
    revive: Callable[[], None] = lambda: None
    _workers: int = 0
    _counted: float = -_COUNT

    @property
    def workers(self) -> int:
        """The number of workers, counted every few seconds."""
        if time.monotonic() - self._counted > _COUNT:
            count = len(self.answer(self._cores))
            if not count and self._workers:
                self.waiting("all workers are lost; waiting for others")
            self.revive()
            self._workers, self._counted = count, time.monotonic()
        return self._workers

    def answer(self, request: Callable[[float], Result]) -> Result:
        """The answer of the scheduler to a request with a time limit in seconds."""
        while self.client.status == "running":
            # A request can wait forever for a scheduler that is lost at that moment.
            with suppress(TimeoutError, OSError):  # OSError: the connection was closed
                return request(_PATIENCE)
        raise _lost()

    def _cores(self, timeout: float) -> Any:
        return self.client.sync(self.client.nthreads, callback_timeout=timeout)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results in the order of the items, as from Python's `map`."""
        pending: dict[int, Result] = {}
        following = 0
        x64 = bool(jax.config.read("jax_enable_x64"))
        parcels = ((place, pickled((function, item)), x64) for place, item in enumerate(items))
        for (place, _, _), result in self.as_done(computed, parcels):
            pending[place] = result
            while following in pending:
                yield pending.pop(following)
                following += 1

    def as_done(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[Item, Result]]:
        """Yield items with results as they finish; after `stop` only those of started tasks."""
        open_tasks = _Open(self, function, iter(items))
        while True:
            open_tasks.fill(stop)
            if not open_tasks.running or (open_tasks.stopped and not self.workers):
                return
            if result := open_tasks.next_done():
                yield result


@dataclass(eq=False)
class _Open:
    """The tasks that were sent and are not yet done."""

    tasks: Tasks  # whose they are
    function: Callable[[Any], Any]  # function of an item
    source: Iterator[Any]  # items that are not yet sent
    stopped: bool = False
    exhausted: bool = False
    running: dict[int, _Task] = field(default_factory=dict)
    _done: "SimpleQueue[tuple[_Task, Future[Any]]]" = field(default_factory=SimpleQueue)
    _took: deque[float] = field(default_factory=lambda: deque(maxlen=100))

    def fill(self, stop: Callable[[], bool]) -> None:
        """Hand out as much as keeps the workers busy, unless it is to stop."""
        self.stopped = self.stopped or stop()
        while not (self.stopped or self.exhausted):
            # One task is computed while the next waits at the worker: it never waits for this
            # process, and later tasks can still be made smaller.
            if len(self.running) >= max(_AHEAD * self.tasks.workers, 1):
                return
            for item in self.source:
                task = _Task(item)
                self.running[id(task)] = task
                self._begin(task, item)
                break
            else:
                self.exhausted = True

    def next_done(self) -> tuple[Any, Any] | None:
        """An item with its result, if one is done soon."""
        try:
            task, future = self._done.get(timeout=_LOOK)
        except Empty:
            if self.exhausted and not self.stopped:
                for slow in self._slow():
                    self._begin(slow, self.tasks.again(slow.item))
            return None
        if id(task) not in self.running:
            # A task that was given to two workers is done with the first result.
            return None  # the other of two was faster
        task.futures.remove(future)
        result = self._result(task, future)
        if result is None:
            self._begin(task, task.item)
            return None
        self._took.append(time.monotonic() - task.begun)
        del self.running[id(task)]
        return task.item, result[0]

    def _begin(self, task: _Task, item: Any) -> None:
        future = self.tasks.client.submit(self.function, item, pure=False)
        task.futures.append(future)
        future.add_done_callback(lambda future: self._done.put((task, future)))

    def _result(self, task: _Task, future: "Future[Any]") -> tuple[Any] | None:
        from distributed import KilledWorker

        try:
            # An exception of the function, which might be a timeout, is here already.
            failed = future.status == "error"
            return (future.result() if failed else self.tasks.answer(future.result),)
        except KilledWorker as error:
            task.lost += 1
            if task.lost > self.tasks.losses:
                advice = "check their memory, or increase `cluster.allowed_failures`"
                message = f"too many workers were lost while they ran the same task; {advice}"
                raise ClusterError(f"{message}: {error}") from error
            return None
        except CancelledError as error:
            raise _lost() from error

    def _slow(self) -> list[_Task]:
        """Select the tasks that free workers compute, too."""
        free = self.tasks.workers - sum(len(task.futures) for task in self.running.values())
        if free <= 0 or not self._took:
            return []
        # The median does not follow the slow ones themselves, as a mean would.
        limit = time.monotonic() - max(_SLOW * median(self._took), _LEAST)
        late = [t for t in self.running.values() if len(t.futures) == 1 and t.begun < limit]
        return sorted(late, key=lambda task: task.begun)[:free]


def use_x64(x64: bool) -> None:
    """Compute with 64 bits from now on, or not."""
    if jax.config.read("jax_enable_x64") != x64:
        jax.config.update("jax_enable_x64", x64)


def pickled(value: Any) -> bytes:
    """Pickle an object, also a function that has no name in a module."""
    from distributed.protocol import pickle as pickles

    return bytes(pickles.dumps(value))


def computed(parcel: tuple[int, bytes, bool]) -> Any:
    """The result of a numbered, pickled function and its argument, in the sender's precision."""
    _, content, x64 = parcel
    use_x64(x64)  # before they are unpacked: arrays of 64 bits would lose half of them
    function, item = pickle.loads(content)
    return function(item)


def _lost() -> ClusterError:
    return ClusterError(
        "the connection to the scheduler was lost; finished blocks are kept, and the same "
        "command resumes from them once a scheduler is running again"
    )
