"""A limit state as an event of OpenTURNS in standard normal space."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from jaxmech.config.errors import InputError
from jaxmech.ensemble.failure.limit_state import LimitState

_DIFFERENCE = 1e-3  # between points whose gradients are compared, in standard deviations


def openturns() -> Any:
    """The package, or an error that says how to install it."""
    try:
        import openturns as ot
    except ImportError as error:
        raise InputError(
            "this method needs OpenTURNS; install it with pip install 'jaxmech[reliability]', or "
            'choose the method "subset" or "monte-carlo"'
        ) from error
    return ot


class OpenTurnsEvent:
    """The event g(u) ≤ 0 for the algorithms of OpenTURNS, with exact gradients.

    Each call of the function of a sample is one batch, and is recorded.
    """

    def __init__(self, limit: LimitState) -> None:
        ot = openturns()
        self.limit = limit
        self.samples: list[tuple[np.ndarray, np.ndarray]] = []  # points and margins of the batches
        self._error: BaseException | None = None
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        function = ot.PythonFunction(
            limit.size,
            1,
            func=self._guarded(lambda u: [self._at(u)[0]]),
            func_sample=self._guarded(self._of_sample),
            gradient=self._guarded(lambda u: self._at(u)[1][:, None].tolist()),
            hessian=self._guarded(self._hessian),
        )
        vector = ot.CompositeRandomVector(function, ot.RandomVector(ot.Normal(limit.size)))
        self.event = ot.ThresholdEvent(vector, ot.LessOrEqual(), 0.0)

    def run(self, algorithm: Any) -> Any:
        """The result of an algorithm; an error of the limit state is raised as it is."""
        try:
            algorithm.run()
        except Exception as error:  # noqa: BLE001 # that OpenTURNS makes of any error of the function
            raise (self._error or error) from None
        return algorithm.getResult()

    @property
    def failed(self) -> bool:
        """Whether the limit state itself has raised an error."""
        return self._error is not None

    def _guarded(self, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(u: Any) -> Any:
            try:
                return fn(u)
            except BaseException as error:
                self._error = error
                raise

        return call

    def _at(self, u: Any) -> tuple[float, np.ndarray]:
        # OpenTURNS asks for a value and its gradient one after the other.
        point = np.asarray(u, float)
        if self._last is None or not np.array_equal(self._last[0], point):
            g, gradient = self.limit.with_gradients(point[None])
            self._last = point, float(g[0]), gradient[0]
        return self._last[1:]

    def _of_sample(self, u: Any) -> np.ndarray:
        points = np.array(u, float)
        margins = self.limit.values(points)
        self.samples.append((points, margins))
        return margins[:, None]

    def _hessian(self, u: Any) -> Any:
        """Central differences of exact gradients, in one batch."""
        point, steps = np.asarray(u, float), _DIFFERENCE * np.eye(self.limit.size)
        _, gradients = self.limit.with_gradients(np.vstack([point + steps, point - steps]))
        ahead, behind = np.split(gradients, 2)
        H = (ahead - behind) / (2 * _DIFFERENCE)
        return ((H + H.T) / 2)[:, :, None].tolist()


@contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """OpenTURNS with random numbers from a seed, and quiet; its own settings are restored."""
    ot = openturns()
    state, flags = ot.RandomGenerator.GetState(), ot.Log.Flags()
    ot.Log.Show(ot.Log.NONE)
    ot.RandomGenerator.SetSeed(seed)
    try:
        yield ot
    finally:
        ot.RandomGenerator.SetState(state)
        ot.Log.Show(flags)
