"""Messages of the commands, and interruption with resumable results."""

import shlex
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from jaxmech.config.errors import StoppedError

TERMINATED = 143  # 128 + SIGTERM, as shells and schedulers of jobs read it


def tell(message: str) -> None:
    """Write a message to the standard error."""
    sys.stderr.write(f"jaxmech: {message}\n")
    sys.stderr.flush()


@contextmanager
def resumable(arguments: Namespace, *options: str) -> Iterator[None]:
    """Say on an interruption with which command and options the work continues."""
    try:
        yield
    except (KeyboardInterrupt, StoppedError) as error:
        again = ["jaxmech", arguments.command, arguments.config]
        for name in options:
            if value := getattr(arguments, name):
                again += [f"--{name}", str(value)]
        why = "stopped by SIGTERM" if isinstance(error, StoppedError) else "interrupted"
        tell(f"{why}; finished work is kept; continue with: {shlex.join(again)}")
        raise


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
