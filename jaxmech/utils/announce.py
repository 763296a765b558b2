"""A message on the standard error where compiling takes longer than a few seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Timer

WAIT = 2.0  # seconds

_IS_COMMAND = ContextVar("command", default=False)
_IS_TIMED = ContextVar("timed", default=False)


@contextmanager
def announced() -> Iterator[None]:
    """Say that something is being compiled, if it takes long and a person may be waiting.

    That is in a command, and wherever the standard error is a terminal.
    """
    if _IS_TIMED.get() or not (_IS_COMMAND.get() or _has_terminal()):
        yield
        return
    timer = Timer(WAIT, _say)
    timer.daemon = True
    token = _IS_TIMED.set(True)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _IS_TIMED.reset(token)


@contextmanager
def command() -> Iterator[None]:
    """Announce what takes long within this context, which is a command, without a terminal too."""
    token = _IS_COMMAND.set(True)
    try:
        yield
    finally:
        _IS_COMMAND.reset(token)


def _has_terminal() -> bool:
    with suppress(AttributeError, ValueError):  # there is none, or it is closed
        return sys.stderr.isatty()
    return False


def _say() -> None:
    with suppress(AttributeError, ValueError):
        sys.stderr.write("jaxmech: compiling ...\n")
        sys.stderr.flush()
