"""The installed jax has none of the known defects, and supports what native code needs."""

import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from packaging.requirements import Requirement

from jaxmech.cli.main import check_jax
from jaxmech.config.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("batch", [16_384, 16_385, 20_000])
@pytest.mark.parametrize("n", [3, 6, 8])
def test_large_batches_of_products_are_right(n: int, batch: int) -> None:
    """jax 0.10.2 is wrong here for n = 3 and 6 and batches over 16384."""
    rng = np.random.default_rng(7)
    M, rows = rng.normal(size=(n, n)), rng.normal(size=(batch, n))
    got = jax.jit(jax.vmap(lambda r: ((M @ r) ** 2).sum()))(rows)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, ((rows @ M.T) ** 2).sum(axis=1), rtol=1e-12)


def test_known_bad_releases_are_refused() -> None:
    check_jax(jax.__version__)
    for release in ("0.9.1", "0.10.2", "0.11.0"):
        with pytest.raises(InputError, match=f"jax {release} is none of jax.*wrong numbers"):
            check_jax(release)


def test_all_extras_need_the_same_releases() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["cuda12"], *extras["cuda13"]]
    releases = [x.specifier for x in map(Requirement, needed) if x.name == "jax"]
    assert len(releases) == 3
    assert len({*releases}) == 1
