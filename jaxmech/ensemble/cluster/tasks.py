"""`Tasks`: a map over the workers of a Dask cluster that survives the loss of some of them."""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
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


class ClusterError(InputError):
    """A cluster cannot be used, or was lost; the text names the remedy."""


@dataclass
class Tasks:
    """A map over the workers of a cluster.

    A task whose worker is lost runs again on another one. So the function must return the same
    result wherever and however often it runs, and repeating its side effects must do no harm.
    """

    client: "Client"  # of the cluster
    losses: int = 20  # how often a task that Dask gives up, for lost workers, is sent again
    waiting: Callable[[str], None] = lambda text: None  # called when all workers are lost
    # is called every few seconds, to start lost workers again
    revive: Callable[[], None] = lambda: None
    _workers: int = 0
    _counted: float = -_COUNT

    @property
    def workers(self) -> int:
        """The number of workers, counted every few seconds."""
        if time.monotonic() - self._counted > _COUNT:
            count = len(self._answer(self._cores))
            if not count and self._workers:
                self.waiting("all workers are lost; waiting for others")
            self.revive()
            self._workers, self._counted = count, time.monotonic()
        return self._workers

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results in the order of the items, as from Python's `map`."""
        pending: dict[int, Result] = {}
        following = 0
        x64 = bool(jax.config.read("jax_enable_x64"))
        parcels = ((index, pickled((function, item)), x64) for index, item in enumerate(items))
        for (index, _, _), result in self.as_done(computed, parcels):
            pending[index] = result
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
        source, stopped, end = iter(items), False, object()
        done: SimpleQueue[Future[Any]] = SimpleQueue()
        running: dict[Future[Any], tuple[Any, int]] = {}  # items, and how often each was lost

        def send(item: Any, lost: int = 0) -> None:
            future = self.client.submit(function, item, pure=False)
            running[future] = item, lost
            future.add_done_callback(done.put)

        while True:
            stopped = stopped or stop()
            # One task is computed while the next waits at the worker: it never waits for this
            # process, and later tasks can still be made smaller.
            while not stopped and len(running) < max(_AHEAD * self.workers, 1):
                if (item := next(source, end)) is end:
                    break
                send(item)
                stopped = stop()
            if not running or (stopped and not self.workers):
                return
            try:
                future = done.get(timeout=_LOOK)
            except Empty:
                continue
            item, lost = running.pop(future)
            result = self._result(future, lost)
            if result is None:
                send(item, lost + 1)
            else:
                yield item, result[0]

    def _result(self, future: "Future[Result]", lost: int) -> tuple[Result] | None:
        """The result of a task; None if it is to be sent again."""
        from distributed import KilledWorker

        try:
            # An exception of the function, which might be a timeout, is here already.
            failed = future.status == "error"
            return (future.result() if failed else self._answer(future.result),)
        except KilledWorker as error:
            if lost < self.losses:
                return None
            advice = "check their memory, or increase `cluster.allowed_failures`"
            message = f"too many workers were lost while they ran the same task; {advice}"
            raise ClusterError(f"{message}: {error}") from error
        except CancelledError as error:
            raise _lost() from error

    def _answer(self, request: Callable[[float], Result]) -> Result:
        """The answer of the scheduler to a request with a time limit in seconds."""
        while self.client.status == "running":
            # A request can wait forever for a scheduler that is lost at that moment.
            with suppress(TimeoutError, OSError):  # OSError: the connection was closed
                return request(_PATIENCE)
        raise _lost()

    def _cores(self, timeout: float) -> Any:
        return self.client.sync(self.client.nthreads, callback_timeout=timeout)


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
