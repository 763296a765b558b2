"""What holds for every test and for the examples in the docstrings: double precision, no display.

It lies beside the package because the examples in `jaxmech/` need it as much as `tests/` does.
"""

import os

os.environ["MPLBACKEND"] = "Agg"  # before matplotlib, and for the commands that tests start

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_report_header() -> str:
    return f"jax {jax.__version__}, float64, {jax.default_backend()}"
