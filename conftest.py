"""Settings for all tests and for the examples in the docstrings: double precision, no display.

It is in the root folder because the examples in `jaxmech/` need it as well as `tests/`.
"""

import gc
import os
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"  # before matplotlib, and for the commands that tests start

import jaxlib

# Most programs of tests run once, and compiling them takes far longer than running them. Commands
# that tests start inherit the setting, so that their results are bit-identical. LLVM does not
# optimize either, which changes no bits. `make slow`, and
# `.ci/run` with the newest JAX, compile as users do: JAX_DISABLE_MOST_OPTIMIZATIONS=0.
quick = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1"
if quick and jaxlib.__version__.startswith("0.9."):
    # Without these emitters compilation takes half the time; later versions of XLA always use them.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# Operations are lowered without the stack that traced them: a twentieth of the time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent
pytest_plugins = ["tests.timing"]

# Types and shapes are checked at every call of the package, before anything of it is imported. Only
# where it is asked for, as in `.ci/run`: it takes a sixth of the time. Excluded are the modules that
# process programs, whose functions are called a million times for one program.
if os.environ.get("CHECK_TYPES") == "1":
    FILES = (ROOT / "jaxmech").rglob("*.py")
    MODULES = (".".join(file.relative_to(ROOT).with_suffix("").parts) for file in FILES)
    UNCHECKED = ("jaxmech.compiler.", "jaxmech.utils.digests")
    install_import_hook([m for m in MODULES if not m.startswith(UNCHECKED)], "beartype.beartype")

# Tracing allocates millions of objects, few of them in cycles. At the default rate of collections
# the search for these takes a seventh of the time of the tests.
gc.set_threshold(50_000, 20, 20)

# Native code is shared by the test processes, and kept from run to run, but apart from the user's.
os.environ.setdefault("JAXMECH_KERNEL_CACHE", str(ROOT / ".pytest_cache" / "kernels"))
# So is the key by which run folders are known again.
os.environ.setdefault("XDG_STATE_HOME", str(ROOT / ".pytest_cache" / "state"))
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
# The same examples in each run, whatever their time, and nothing kept.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_report_header() -> str:
    return f"jax {jax.__version__}, float64, {jax.default_backend()}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples are slow, except those of the names that `import jaxmech` offers at the top."""
    import jaxmech

    for item in items:
        if isinstance(item, pytest.DoctestItem):
            shown = getattr(jaxmech, item.name.rpartition(".")[2], None)
            if f"{getattr(shown, '__module__', None)}.{getattr(shown, '__name__', None)}" != item.name:
                item.add_marker(pytest.mark.slow)
