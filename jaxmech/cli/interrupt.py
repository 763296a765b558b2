"""Messages of the commands, and SIGTERM, after which they stop where they can continue."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def tell(message: str) -> None:
    """Write a message to the standard error."""
    sys.stderr.write(f"jaxmech: {message}\n")
    sys.stderr.flush()


@contextmanager
def graceful() -> Iterator[Callable[[], bool]]:
    """Yield a function that reports whether SIGTERM was received; a second one ends the process."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only it receives signals
        yield lambda: False
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        received.append(number)
        tell("SIGTERM: stopping after the current block")
        signal.signal(signal.SIGTERM, previous)

    previous = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, previous)
