"""The pages below run and print the output that they show.

Run as a program, this file draws the pictures of docs/modes.md.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxmech.models import CATALOGUE

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\nprints\n\n```\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PAGES = (
    "modes",
    "gallery",
    "long_time",
    "study_tutorial",
    "tutorial",
    "events",
    "adaptive",
    "stiff",
    "interop",
    "states",
    "quasi_velocities",
    "design",
    "ten_minutes",
    "equations",
    "sharp_bits",
    "inputs",
    "recordings",
    "noise",
    "physical",
)
WITHOUT_PICTURES = (
    "adaptive",
    "states",
    "quasi_velocities",
    "design",
    "ten_minutes",
    "equations",
    "sharp_bits",
    "inputs",
    "recordings",
    "noise",
    "physical",
)
SEPARATOR = "\nprint('\\0', end='')\n"  # between the outputs of blocks


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def run(page: str, folder: Path) -> list[tuple[str, str]]:
    """The printed output of each block, pasted into a new process, and the output on the page."""
    blocks = BLOCK.findall(text(page))
    program = folder / f"{page}.py"
    files = [DOCS / "data" / name for name in re.findall(r"\]\(data/(\w+\.csv)\)", text(page))]
    for file in files:
        shutil.copyfile(file, folder / file.name)
    program.write_text(SEPARATOR.join(code for code, _ in blocks), encoding="utf-8")
    plain = ("JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_ENABLE_X64")  # of the tests, not of a reader
    environment = {name: value for name, value in os.environ.items() if name not in plain}
    done = subprocess.run(
        [sys.executable, program.name], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for file in (program, *(folder / file.name for file in files)):
        file.unlink()
    return list(zip(done.stdout.split("\0"), (said for _, said in blocks), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_follows_it(page: str, tmp_path: Path) -> None:
    for shown, said in run(page, tmp_path):
        assert NUMBER.sub("#", shown) == NUMBER.sub("#", said)
        pairs = zip(NUMBER.findall(shown), NUMBER.findall(said), strict=True)
        for mine, theirs in pairs:
            np.testing.assert_allclose(float(mine), float(theirs), rtol=1e-4, atol=2e-6)
    drawn = {file.name for file in tmp_path.iterdir()}
    program = "".join(code for code, _ in BLOCK.findall(text(page)))
    assert drawn == set(re.findall(r'(?:save|savefig|file)[(=]"(\w+\.\w+)"', program))


@pytest.mark.parametrize("page", PAGES)
def test_every_block_prints_something_and_every_picture_is_there(page: str) -> None:
    found = BLOCK.findall(text(page))
    assert len(found) == text(page).count("```python")
    assert all(said and "print(" in code for code, said in found)
    links = re.findall(r"\]\(([\w/]+\.(?:png|gif))\)", text(page))
    assert bool(links) == (page not in WITHOUT_PICTURES)
    assert [link for link in links if not (DOCS / link).is_file()] == []


def test_the_gallery_names_every_model() -> None:
    assert set(re.findall(r"\*\*(\w+)\*\*", text("gallery"))) == set(CATALOGUE)


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md")))
def test_examples_that_are_pasted_compute_in_float64(page: Path) -> None:
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    if any("simulate(" in code for code, _ in blocks):
        assert 'jax.config.update("jax_enable_x64", True)' in blocks[0][0]


if __name__ == "__main__":
    for shown, _ in run("modes", DOCS / "pictures"):
        sys.stdout.write(f"```\n{shown}```\n\n")
