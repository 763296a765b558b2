"""A cluster without Dask: threads of this process in place of workers."""

from collections.abc import Callable
from functools import cached_property
from threading import Timer

from jaxmech.ensemble.cluster.workers import facts_of_worker


class Given:
    """A future that is done after some time; its function runs when its outcome is looked at."""

    def __init__(self, compute: Callable[[], object], seconds: float) -> None:
        self._compute, self._seconds = compute, seconds

    def add_done_callback(self, fn) -> None:
        timer = Timer(self._seconds, fn, [self])
        timer.daemon = True
        timer.start()

    @property
    def status(self) -> str:
        return "finished" if self._error is None else "error"

    @cached_property
    def _error(self) -> Exception | None:
        try:
            self._value = self._compute()
        except Exception as error:  # noqa: BLE001 - whatever the function raises
            return error
        return None

    def result(self, timeout: float | None = None) -> object:
        if self._error is not None:
            raise self._error
        return self._value


class Crew:
    """A client of threads; `seconds(item, how often it was given out before)` is what they take."""

    status = "running"

    def __init__(self, workers: int = 2, seconds=lambda item, again: 0.0) -> None:
        self.count, self.seconds = workers, seconds
        self.facts: dict[str, object] = {}  # of its workers, besides those of this process
        self.given: list[object] = []
        self.open = self.most_open = 0

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(map(str, range(self.count)), 1)

    def sync(self, function, callback_timeout: float) -> object:
        return function()

    def run(self, function, *args, on_error: str) -> dict[str, object]:
        assert (function, on_error) == (facts_of_worker, "return")
        return {worker: {**function(*args), **self.facts} for worker in self.nthreads()}

    def submit(self, function, item, pure: bool) -> Given:
        assert not pure  # the same blocks may be given out twice
        self.given.append(item)
        self.open += 1
        self.most_open = max(self.most_open, self.open)

        def compute() -> object:
            self.open -= 1
            return function(item)

        return Given(compute, self.seconds(item, self.given.count(item) - 1))
