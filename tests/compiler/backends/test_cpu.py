"""A long module is compiled by a child process, which can be left."""

import signal
import threading
import time

import pytest

from jaxmech.compiler.backends import cpu as compiling
from jaxmech.compiler.backends.cpu import compile_module

MODULE = """
define double @square(double %x) {
  %y = fmul double %x, %x
  ret double %y
}
"""


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "LONGEST_INSIDE", 0)


def test_the_code_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = compile_module(MODULE, False)
    monkeypatch.setattr(compiling, "LONGEST_INSIDE", 0)
    assert compile_module(MODULE, False) == inside


@pytest.mark.usefixtures("apart")
def test_what_llvm_refuses_is_an_exception_of_one_line() -> None:
    with pytest.raises(RuntimeError, match="expected top-level entity") as refused:
        compile_module("nonsense\n", False)
    assert "\n" not in str(refused.value)


def test_an_abort_of_llvm_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "LONGEST_INSIDE", 0)
    monkeypatch.setattr(compiling, "_CHILD", "import os; os.abort()")
    with pytest.raises(RuntimeError, match="LLVM ended with code -6"):
        compile_module(MODULE, False)


def test_an_interruption_does_not_wait_for_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "LONGEST_INSIDE", 0)
    monkeypatch.setattr(compiling, "_CHILD", "import time; time.sleep(60)")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    begun, this = time.monotonic(), threading.get_ident()
    timer = threading.Timer(1.0, signal.pthread_kill, (this, signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_module(MODULE, False)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 30
