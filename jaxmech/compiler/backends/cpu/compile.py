"""Compilation of a module of LLVM to object code, in a process that can be left if it is long.

LLVM does not return to Python before it is done: an interruption would wait for it, and an error
that aborts it would end the process. So a long module is compiled by a child, which is stopped by
an interruption, and whose failure is an exception.
"""

import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import Any

import llvmlite
import llvmlite.binding as llvm

ONE_AT_A_TIME = Lock()  # of the calls of LLVM, which is not safe for threads
OPTIMIZED = 2  # level of LLVM; without optimization, 0, it compiles seven times faster
LONGEST_INSIDE = 5_000  # lines, about a second; a child takes 0.2 s to start

# The child ends with its parent, where the system can tell it (PR_SET_PDEATHSIG of Linux).
_CHILD = """
import ctypes, sys
try:
    ctypes.CDLL(None).prctl(1, 9)
except (OSError, AttributeError):
    pass
sys.path.insert(0, sys.argv[1])
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
machine = llvm.Target.from_default_triple().create_target_machine(
    cpu=llvm.get_host_cpu_name(),
    features=llvm.get_host_cpu_features().flatten(),
    opt=int(sys.argv[2]),
    jit=True,
)
try:
    code = machine.emit_object(llvm.parse_assembly(sys.stdin.buffer.read().decode()))
except RuntimeError as error:
    sys.exit(" ".join(str(error).split()))
sys.stdout.buffer.write(code)
"""


def compile_module(module: str, is_optimized: bool) -> bytes:
    """The object code of a module, for this processor.

    Raises:
        RuntimeError: if LLVM refuses the module, or fails.
    """
    level = OPTIMIZED if is_optimized else 0
    if sys.executable and module.count("\n") > LONGEST_INSIDE:
        return _compiled_apart(module, level)
    # An engine that has compiled is forty times larger than the code: it is freed, and another one
    # loads the code.
    with ONE_AT_A_TIME:
        return bytes(target_machine(level).emit_object(llvm.parse_assembly(module)))


def _compiled_apart(module: str, level: int) -> bytes:
    folder = str(Path(llvmlite.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-I", "-c", _CHILD, folder, str(level)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # an interruption by the keyboard is for this process
    ) as child:
        try:
            code, messages = child.communicate(module.encode())
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        lines = messages.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"LLVM ended with code {child.returncode}")
    return code


def target_machine(level: int) -> Any:
    """The machine of LLVM for this processor, with a level of optimization."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        jit=True,
    )
