"""Settings for all tests and for the examples in the docstrings: double precision, no display.

It is in the root folder because the examples in `jaxmech/` need it as well as `tests/`.
"""

import gc
import os
import platform
import shutil
import zlib
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"  # before matplotlib, and for the commands that tests start
# The matrices of tests are small, and threads that wait for each other take a tenth of the time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jaxlib

# Most programs of tests run once, and compiling them takes far longer than running them. Commands
# that tests start inherit the setting, so that their results are bit-identical. LLVM does not
# optimize either, which changes no bits. `.ci/run` with the newest JAX compiles as users do:
# JAX_DISABLE_MOST_OPTIMIZATIONS=0.
quick = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1"
if quick and jaxlib.__version__.startswith("0.9."):
    # Without these emitters compilation takes half the time; later versions of XLA always use them.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
if tuple(map(int, jaxlib.__version__.split(".")[:2])) < (0, 12):
    # These print an error for every program that `keep_programs` finds again (jax#38445).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Operations are lowered without the stack that traced them: a twentieth of the time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent
pytest_plugins = ["tests.timing"]

# Types and shapes are checked at every call of the package only where that is asked for, as in
# `.ci/run`: it takes a sixth of the time. Excluded are the modules that process programs, whose
# functions are called a million times for one program.
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


def keep_programs() -> None:
    """Programs of XLA are kept from run to run, for processes that tests start too.

    Only where a probe shows that they are found again: some releases reject every entry on some
    processors. A folder beyond two gigabytes, mostly of programs of older sources, is emptied.
    """
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text().partition("flags")[2].partition("\n")[0] if cpu.exists() else ""
    kind = f"{jax.__version__}-{platform.machine()}-{zlib.crc32(flags.encode()):x}"
    folder = ROOT / ".pytest_cache" / "xla" / kind
    if "PYTEST_XDIST_WORKER" not in os.environ and folder.exists():
        with os.scandir(folder) as entries:
            size = sum(entry.stat().st_size for entry in entries)
        if size > 2e9:
            shutil.rmtree(folder)
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)
    seen = []
    jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
    for _ in range(2):
        jax.clear_caches()
        jax.jit(lambda x: 2 * x + 1).lower(1.0).compile()
    jax.monitoring.clear_event_listeners()
    if any(event.endswith("/cache_hits") for event in seen):
        os.environ.update((name.upper(), str(value)) for name, value in settings.items())
    else:
        jax.config.update("jax_compilation_cache_dir", None)


keep_programs()
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
            module, _, name = item.name.rpartition(".")
            if getattr(getattr(jaxmech, name, None), "__module__", None) != module:
                item.add_marker(pytest.mark.slow)
