"""What holds for every test and for the examples in the docstrings.

Double precision, no display, and types and shapes checked at every call of the package.

It lies beside the package because the examples in `jaxmech/` need it as much as `tests/` does.
"""

import os
import pkgutil
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"  # before matplotlib, and for the commands that tests start

import jax
from jaxtyping import install_import_hook

# Before anything of the package is imported. Not in the compiler: its functions are called a
# million times for one program, and take three times as long with the checks.
PACKAGES = pkgutil.iter_modules([str(Path(__file__).parent / "jaxmech")], "jaxmech.")
CHECKED = [package.name for package in PACKAGES if package.name != "jaxmech.compiler"]
install_import_hook(CHECKED, "beartype.beartype")

# Native code is shared by the test processes, and kept from run to run, but apart from the user's.
os.environ.setdefault(
    "JAXMECH_KERNEL_CACHE", str(Path(__file__).parent / ".pytest_cache" / "kernels")
)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_report_header() -> str:
    return f"jax {jax.__version__}, float64, {jax.default_backend()}"
