"""What has to agree in a release: versions, requirements, and the files that name them."""

import re
import tomllib
from pathlib import Path

import pytest

import jaxmech

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = yaml.safe_load((ROOT / ".github" / "conda" / "recipe.yaml").read_text())


def requirements(lines: list[str]) -> dict[str, set[str]]:
    """The limits of versions by package, under their names on PyPI."""
    pairs = (re.fullmatch(r"([\w-]+?)(?:-base)? ?([<>=!].*)", line) for line in lines)
    return {pair[1]: set(pair[2].split(",")) for pair in pairs if pair}


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes is not None
    stated = {citation["version"], RECIPE["context"]["version"], changes[1], PROJECT["version"]}
    assert stated == {jaxmech.__version__}


def test_the_conda_recipe_has_the_requirements_of_the_project() -> None:
    python, *run = RECIPE["requirements"]["run"]
    assert python == f"python {PROJECT['requires-python']}"
    assert len(run) == len(PROJECT["dependencies"])
    assert requirements(run) == requirements(PROJECT["dependencies"])
    command, place = RECIPE["build"]["python"]["entry_points"][0].split(" = ")
    assert PROJECT["scripts"] == {command: place}
