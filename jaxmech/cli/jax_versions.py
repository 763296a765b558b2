"""Releases of jax that must not be used, and why.

The same list is in the dependencies of `pyproject.toml`, for the installer; this one is for an
environment in which jax was changed later. `tests/cli/test_jax_versions.py` compares the two and
shows that the installed jax has none of the defects.
"""

from packaging.specifiers import SpecifierSet
from packaging.version import Version

# releases of jax, as version specifiers, with the end of the sentence "jax x.y.z ..."
KNOWN_BAD = {
    "<0.9.2": "is older than the oldest release that jaxmech is tested with",
    "==0.10.*": "gives wrong numbers on the CPU for batches of more than 16384 matrix-vector "
    "products, and can hang when one program holds two batched LAPACK calls",
    "==0.11.0": "can hang on the CPU when one program holds two batched LAPACK calls",
}
ALLOWED_JAX = "jax>=0.9.2,!=0.10.*,!=0.11.0"


def check_jax(version: str) -> str | None:
    """The reason why a release of jax must not be used, with the remedy, or None."""
    release = Version(version)
    for versions, reason in KNOWN_BAD.items():
        if SpecifierSet(versions).contains(release, prereleases=True):
            return f"jax {version} {reason}; install a release in {ALLOWED_JAX}."
    return None
