"""A message where compiling takes long, and nowhere else."""

import io
import sys
import time
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmech.compiler import batched, operation
from jaxmech.utils import announce
from jaxmech.utils.announce import announced


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, wait: float) -> str:
    """What is said within five seconds, or until something is."""
    monkeypatch.setattr(announce, "WAIT", wait)
    monkeypatch.setattr(sys, "stderr", stream)
    with announced(), announced():
        end = time.monotonic() + 5.0
        while wait == 0.0 and not stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    return stream.getvalue()


def test_a_terminal_or_a_command_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, Terminal(), 0.0) == "jaxmech: compiling ...\n"
    with announce.command():
        assert said(monkeypatch, io.StringIO(), 0.0) == "jaxmech: compiling ...\n"


def test_what_is_short_or_unseen_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, Terminal(), 3600.0) == ""
    monkeypatch.setattr(announce, "Timer", None)  # none may be started
    monkeypatch.setattr(sys, "stderr", None)
    with announced():
        pass
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with announced():
        pass


def test_programs_are_announced_while_they_are_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def noted() -> Any:
        begun.append(True)
        return nullcontext()

    monkeypatch.setattr(operation, "announced", noted)
    jax.jit(jax.vmap(batched(lambda x: x * jnp.sin(x) + 0.4321))).lower(jnp.ones(3))
    assert begun == [True]
