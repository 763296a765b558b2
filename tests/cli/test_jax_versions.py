"""The installed jax has none of the known defects, and supports what native code needs."""

import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet

from jaxmech.cli.main import ALLOWED_JAX, KNOWN_BAD, check_jax

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


def dependency(requirements: list[str], name: str) -> Requirement:
    return next(r for r in map(Requirement, requirements) if r.name == name)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_installed_jax_is_allowed() -> None:
    check_jax(jax.__version__)
    assert Requirement(ALLOWED_JAX).specifier.contains(jax.__version__, prereleases=True)


def test_pyproject_excludes_what_the_code_refuses() -> None:
    allowed = Requirement(ALLOWED_JAX)
    opposite = {"<": ">=", "==": "!="}
    refused = [Specifier(versions) for versions in KNOWN_BAD]
    assert allowed.specifier == SpecifierSet(
        ",".join(opposite[bad.operator] + bad.version for bad in refused)
    )
    assert dependency(project()["dependencies"], "jax").specifier == allowed.specifier
    for name in ("cuda12", "cuda13"):
        cuda = dependency(project()["optional-dependencies"][name], "jax")
        assert cuda.specifier == allowed.specifier
        assert cuda.extras == {name}
