"""Which modules are installed libraries, whose variables and classes are taken as constant."""

import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Any

_FOLDERS = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[2]),
    "<frozen",
)


def is_of_library(x: Any) -> bool:
    """Whether a class or function is defined in a library."""
    return is_library(x.__module__)


@lru_cache(maxsize=4096)
def is_library(module: str) -> bool:
    """Whether a module is part of Python, of jaxmech or of an installed package.

    Example:
        >>> is_library("math"), is_library("jax.numpy"), is_library("__main__")
        (True, True, False)
    """
    if module == "__main__" or module in sys.builtin_module_names:
        return module != "__main__"
    package = module.partition(".")[0]  # where a compiled module has no file
    files = (getattr(sys.modules.get(name), "__file__", None) for name in (module, package))
    return any(file is not None and is_in_library(file) for file in files)


@lru_cache(maxsize=4096)
def is_in_library(file: str) -> bool:
    """Whether a file is part of a library."""
    return file.startswith(_FOLDERS)
