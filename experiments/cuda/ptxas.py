"""NVIDIA's assembler, which reports the registers and spills of a kernel."""

import re
import resource
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_120")  # Turing, A100, H100, Blackwell
_COUNTS = {
    "registers": r"Used (\d+) registers",
    "spilled": r"(\d+) bytes spill stores",
    "stack": r"(\d+) bytes stack frame",
}


class Assembled(NamedTuple):
    """The report of ptxas on a kernel for one architecture.

    Attributes:
        registers: number of registers of a thread, of 255.
        spilled: bytes stored because registers do not suffice.
        stack: bytes of a thread's local memory: spills, sequences and calls.
        seconds: processor seconds of the assembler.
    """

    registers: int
    spilled: int
    stack: int
    seconds: float


@cache
def ptxas() -> str | None:
    """Find the program in the wheel `nvidia-cuda-nvcc` or in a CUDA toolkit, else None."""
    spec = find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        for folder in ("cuda_nvcc", "cu13"):
            if (found := Path(root, folder, "bin", "ptxas")).is_file():
                return str(found)
    return shutil.which("ptxas")


@cache
def version() -> str:
    """The version that the program reports."""
    told = subprocess.run([str(ptxas()), "--version"], capture_output=True, text=True, check=True)
    return told.stdout.splitlines()[-2].partition("release ")[2]


@cache
def architectures() -> tuple[str, ...]:
    """The `ARCHITECTURES` that the program supports."""
    told = subprocess.run([str(ptxas()), "--help"], capture_output=True, text=True, check=True)
    return tuple(name for name in ARCHITECTURES if f"'{name}'" in told.stdout)


def assembled(ptx: str, architecture: str) -> Assembled:
    """Assemble a kernel.

    Raises:
        ValueError: ptxas rejects it; the text is its message.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx, encoding="utf-8")
        command = [str(ptxas()), "-v", f"-arch={architecture}", "-o", f"{folder}/out", source]
        begun = _seconds_of_children()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = _seconds_of_children() - begun
    told = done.stdout + done.stderr
    if done.returncode != 0:
        raise ValueError(f"ptxas refuses a kernel for {architecture}: {told.strip()}")
    own = told[told.index("Compiling entry function") :]  # preceded by functions of libdevice
    counts = {key: int(_first(pattern, own)) for key, pattern in _COUNTS.items()}
    return Assembled(**counts, seconds=round(seconds, 3))


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]
