"""Every block of every page runs as pasted, and prints what follows it.

A page imports only the packages of the base installation and of the extras that it names: "needs
`pip install '.[xarray]'`".
"""

import contextlib
import io
import linecache
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import matplotlib.pyplot as plt
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
    lines = [line for extra in (*extras, "dev") for line in optional[extra]]  # pytest stays
    present = packages_of([*project["dependencies"], *lines])
    others = packages_of(line for lines in optional.values() for line in lines) - present
    return {
        module
        for module, names in metadata.packages_distributions().items()
        if {canonicalize_name(name) for name in names} <= others
    }


def finder_without(absent: set[str]) -> Any:
    """What finds all modules but these."""

    class Installed(PathFinder):
        @classmethod
        def find_spec(cls, name: str, *place: Any) -> Any:
            is_absent = name.partition(".")[0] in absent
            return None if is_absent else super().find_spec(name, *place)

    return Installed


def run(page: str) -> list[tuple[str, str]]:
    """The printed output of each block, one after the other, and the output on the page."""
    module = ModuleType(f"page_{Path(page).stem}")
    sys.modules[module.__name__] = module  # where functions and classes of the page are looked up
    outputs = []
    for number, (code, said) in enumerate(BLOCK.findall(TEXTS[page])):
        name = f"{page}, block {number + 1}"
        linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            exec(compile(code, name, "exec"), module.__dict__)
        outputs.append((shown.getvalue(), said))
    return outputs


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


def forget_packages() -> None:
    """Let xarray look again for the packages that are there."""
    for module in [module for name, module in sys.modules.items() if name.startswith("xarray.")]:
        for function in vars(module).values():
            if callable(getattr(function, "cache_clear", None)):
                function.cache_clear()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_follows_it(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    forget_packages()
    request.addfinalizer(forget_packages)
    data = re.findall(r"\]\(data/(\w+\.csv)\)", TEXTS[page])
    for name in data:
        shutil.copyfile(DOCS / "data" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    extras = [extra for extras in EXTRAS.findall(TEXTS[page]) for extra in extras.split(",")]
    absent = absent_modules(extras)
    for name in [name for name in sys.modules if name.partition(".")[0] in absent]:
        monkeypatch.delitem(sys.modules, name)
    installed = [finder_without(absent) if f is PathFinder else f for f in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", installed)
    with jax.numpy_rank_promotion("allow"), plt.rc_context():
        for shown, said in run(page):
            require_alike(shown, said)
    plt.close("all")
    program = "".join(code for code, _ in BLOCK.findall(TEXTS[page]))
    drawn = {file.name for file in tmp_path.iterdir()} - {*data}
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
