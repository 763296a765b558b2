"""A long module is compiled by a child process, which can be left."""

import signal
import subprocess
import sys
import time

import pytest

from jaxmech.compiler.backends.cpu import runtime as compiling
from jaxmech.compiler.backends.cpu.runtime import compile_module

MODULE = """
define double @square(double %x) {
  %y = fmul double %x, %x
  ret double %y
}
"""
LONG = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs in the background
from jaxmech.compiler.backends.cpu.runtime import compile_module
lines = ["define double @power(double %x0, double %y) {"]
lines += [f"%x{k + 1} = fmul double %x{k}, %y" for k in range(400_000)]
lines += ["ret double %x400000", "}"]
print("begins", flush=True)
try:
    compile_module("\\n".join(lines), True)
    print("compiled")
except KeyboardInterrupt:
    print("left")
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


@pytest.mark.slow
def test_an_interruption_does_not_wait_for_llvm() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LONG], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "left\n"
