"""Every block of every page runs as pasted, and prints what follows it.

A page runs in a process of its own that imports only the packages of the base installation and of
the extras that the page names: "needs `pip install '.[xarray]'`".
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\nprints\n\n```\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ROUND_OFF = 1e-10  # printed numbers below this are only compared in size
SMALL = 2e-6  # and errors below this by a factor
EXTRAS = re.compile(r"needs `pip install '\.\[([\w,]+)\]'`")
FILES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TEXTS = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in FILES}
ELSEWHERE = ("docs/measured_pendulum.md",)  # with its recordings, by test_measured_page.py
PAGES = [page for page, text in TEXTS.items() if "```python" in text and page not in ELSEWHERE]
SEPARATOR = "\nprint('\\0', end='')\n"  # between the outputs of blocks
# Python imports this file, of which `absent` is the first line, when it starts.
WITHOUT_PACKAGES = """
import sys
from importlib.machinery import PathFinder

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in absent:
            return super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
"""


def packages_of(requirements: Iterable[str]) -> set[str]:
    """The installed distributions that requirements lead to, with the extras that they name."""
    names: set[str] = set()
    tasks = [Requirement(line) for line in requirements]
    done = set()
    while tasks:
        task = tasks.pop()
        name = canonicalize_name(task.name)
        markers = [{"extra": extra} for extra in (*task.extras, "")]
        if (name, extras := frozenset(task.extras)) in done or name == "jaxmech":
            continue
        done.add((name, extras))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        names.add(name)
        further = map(Requirement, lines)
        tasks += [r for r in further if r.marker is None or any(map(r.marker.evaluate, markers))]
    return names


def absent_modules(extras: Iterable[str]) -> set[str]:
    """The modules of all other extras of the project, which are not there without them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional: dict[str, Any] = project["optional-dependencies"]
    lines = [line for extra in extras for line in optional[extra]]
    present = packages_of([*project["dependencies"], *lines])
    others = packages_of(line for lines in optional.values() for line in lines) - present
    return {
        module
        for module, names in metadata.packages_distributions().items()
        if {canonicalize_name(name) for name in names} <= others
    }


def run(page: str, folder: Path, hidden: Path) -> list[tuple[str, str]]:
    """The printed output of each block, pasted into a new process, and the output on the page.

    `folder` is where the process runs, `hidden` a folder for what it must not find there.
    """
    text = TEXTS[page]
    blocks = BLOCK.findall(text)
    program = hidden / f"{Path(page).stem}.py"
    for name in re.findall(r"\]\(data/(\w+\.csv)\)", text):
        shutil.copyfile(DOCS / "data" / name, folder / name)
    program.write_text(SEPARATOR.join(code for code, _ in blocks), encoding="utf-8")
    extras = [extra for extras in EXTRAS.findall(text) for extra in extras.split(",")]
    absent = f"absent = {sorted(absent_modules(extras))}"
    (hidden / "sitecustomize.py").write_text(absent + WITHOUT_PACKAGES, encoding="utf-8")
    environment = {name: x for name, x in os.environ.items() if name != "JAX_ENABLE_X64"}
    paths = [str(hidden), str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    done = subprocess.run(
        [sys.executable, program], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(zip(done.stdout.split("\0"), (said for _, said in blocks), strict=True))


def require_alike(shown: str, said: str) -> None:
    """Raise unless two outputs are the same text, with numbers that differ by round-off."""
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", said)
    for mine, theirs in zip(NUMBER.findall(shown), NUMBER.findall(said), strict=True):
        assert mine.isdigit() == theirs.isdigit()
        x, y = float(mine), float(theirs)
        if abs(y) < ROUND_OFF:
            assert abs(x) < ROUND_OFF
        elif "e" in theirs and abs(y) < SMALL:  # an error, which depends on rounding
            assert 0.5 < x / y < 2
        else:
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_follows_it(page: str, tmp_path: Path) -> None:
    folder, hidden = tmp_path / "work", tmp_path / "hidden"
    folder.mkdir()
    hidden.mkdir()
    for shown, said in run(page, folder, hidden):
        require_alike(shown, said)
    program = "".join(code for code, _ in BLOCK.findall(TEXTS[page]))
    data = re.findall(r"\]\(data/(\w+\.csv)\)", TEXTS[page])
    drawn = {file.name for file in folder.iterdir()} - {*data}
    assert drawn == set(re.findall(r'(?:save|savefig|file)[(=]"(\w+\.\w+)"', program))


@pytest.mark.parametrize("page", PAGES)
def test_every_output_is_shown_and_every_picture_is_there(page: str) -> None:
    text = TEXTS[page]
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python")
    assert [bool(said) for _, said in blocks] == ["print(" in code for code, _ in blocks]
    links = re.findall(r"\]\(([\w/]+\.(?:png|gif))\)", text)
    folder = (ROOT / page).parent
    assert [link for link in links if not (folder / link).is_file()] == []


def test_packages_of_other_extras_are_absent() -> None:
    pytest.importorskip("xarray", reason="xarray is not installed: jaxmech[xarray]")
    assert "xarray" in absent_modules([])
    assert "xarray" not in absent_modules(["xarray"])
    assert not absent_modules([]) & {"jax", "numpy", "scipy", "zarr", "jaxmech", "llvmlite"}


@pytest.mark.parametrize("page", PAGES)
def test_examples_that_are_pasted_compute_in_float64(page: str) -> None:
    blocks = BLOCK.findall(TEXTS[page])
    if any("simulate(" in code for code, _ in blocks):
        assert 'jax.config.update("jax_enable_x64", True)' in blocks[0][0]
