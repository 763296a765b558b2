"""libdevice: NVIDIA's mathematical functions as LLVM bitcode, a part of CUDA."""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_FILE = "nvvm/libdevice/libdevice.10.bc"
_WHEELS = ("cuda_nvcc", "cu13")  # folders of CUDA 12's and CUDA 13's wheels in `nvidia`
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_USUAL = Path("/usr/local/cuda")


class LibdeviceError(RuntimeError):
    """libdevice is needed and not installed."""


@cache
def bitcode() -> bytes:
    """Return the content of the file.

    Raises:
        LibdeviceError: if it is not found; the message says how to install it.
    """
    places = folders()
    for folder in places:
        file = folder / _FILE
        if file.is_file():
            return file.read_bytes()
    raise LibdeviceError(
        f"A GPU kernel that needs exp, log, pow or the like needs {_FILE}, which is in none of "
        f"{', '.join(map(str, places)) or 'the installed packages'}; install `jax[cuda12]` or "
        "`jax[cuda13]`, or set the environment variable CUDA_HOME to the folder of a "
        "CUDA toolkit."
    )


def folders() -> list[Path]:
    """Folders where CUDA may be: wheels, toolkits named in the environment, the default path."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations or [] if spec else []
    wheels = [Path(root, name) for root in roots for name in _WHEELS]
    configured = [Path(os.environ[name]) for name in _TOOLKITS if os.environ.get(name)]
    return [*wheels, *configured, _USUAL]
