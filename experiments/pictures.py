"""Remakes the pictures of the documentation, all of them or those that are named.

python -m experiments.pictures [hero.gif precision ...]

Each picture has one source: the code of the page that shows it, run as pasted; an animation; or the
stored results of an experiment. A name is that of a file or of its folder. What a picture needs and
is not here (a browser, recordings, half an hour) is printed, and the picture stays.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

from experiments import bicycle, front_page, gallery, singular_pose, view_picture
from experiments.cuda.__main__ import draw as draw_cuda
from experiments.work_precision.report import draw as draw_precision
from jaxmech.models import CATALOGUE

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = DOCS / "pictures"
PAGES = {  # and the pictures that their code writes
    "../README": ["hero.gif", "study.png", "fit.png", "gradient.png"],
    "events": ["events.png"],
    "modes": ["modes_over_speed.png"],
    "optimal_control": ["optimal_crane.png", "optimal_swing.png", "optimal_four_bar.png"],
    "study_tutorial": ["study_tutorial.png"],
    "tutorial": ["tutorial_viscous.png", "tutorial_dry.png"],
}
ELSEWHERE = {
    "long_time.png": "python -m experiments.long_time (half an hour)",
    "data_flow.svg": "drawn by hand",
    **{
        f"fit_{name}.png": "python tests/test_measured_page.py, with the recordings"
        for name in ("viscous", "lifting", "validation", "correlation")
    },
}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

Draw = Callable[[], object]


def sources() -> Iterator[tuple[Path, Draw]]:
    """The file of each picture, and the function that writes it; some write several files."""
    for name in CATALOGUE:
        file = DOCS / "gallery" / f"{name}.gif"
        yield file, lambda name=name, file=file: gallery.animation(name).save(file, dpi=gallery.DPI)
    yield DOCS / "gallery" / "mode.gif", lambda: gallery.mode(DOCS / "gallery" / "mode.gif")
    speeds = PICTURES / "speed_peers.png"
    yield speeds, lambda: front_page.draw_speeds(speeds)
    for program in sorted((DOCS.parent / "examples").glob("*.py")):
        small = DOCS / "examples" / "thumbnails" / f"{program.stem}.png"
        yield small, lambda name=program.stem, small=small: front_page.thumbnail(name, small)
    yield PICTURES / "view.png", lambda: view_picture.main(PICTURES / "view.png")
    yield PICTURES / "modes_bicycle.png", lambda: bicycle.main(PICTURES / "modes_bicycle.png")
    yield PICTURES / "singular_pose.png", lambda: singular_pose.main(PICTURES / "singular_pose.png")
    for page, files in PAGES.items():
        yield PICTURES / files[0], lambda page=page, files=files: _of_page(page, files)
    for file in sorted((DOCS / "precision").glob("*.png")):
        yield file, lambda file=file: draw_precision(file.stem, _results(file), file)
    cuda = DOCS / "gpu" / "speeds.png"
    yield cuda, lambda: draw_cuda(_results(cuda.with_name("cuda.json")), cuda.parent)


def main(arguments: list[str] | None = None) -> None:
    """Remake pictures, and print their names."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(prog="python -m experiments.pictures")
    parser.add_argument("names", nargs="*", metavar="NAME", help="files or folders; all by default")
    names = set(parser.parse_args(arguments).names)
    known = dict(sources())
    folders = {file.parent.name for file in known}
    names |= {files[0] for files in PAGES.values() if names & {*files}}  # with which it writes all
    of_pages = {name for files in PAGES.values() for name in files}
    unknown = names - {file.name for file in known} - of_pages - folders - {*ELSEWHERE}
    if unknown:
        listed = ", ".join(sorted({file.name for file in known} | folders))
        parser.error(f"no picture is called {', '.join(sorted(unknown))}; there are {listed}")
    for file, draw in known.items():
        if not names or names & {file.name, file.parent.name}:
            draw()
            print(file.relative_to(DOCS), flush=True)
    for name, command in ELSEWHERE.items():
        if not names or name in names:
            print(f"{name} stays as it is: {command}", flush=True)


def _results(file: Path) -> dict[str, object]:
    return dict(json.loads(file.with_suffix(".json").read_text(encoding="utf-8")))


def _of_page(page: str, files: list[str]) -> None:
    """Run the code of a page in an empty folder, and take its pictures."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name in re.findall(r"\]\(data/(\w+\.csv)\)", text):
            shutil.copyfile(DOCS / "data" / name, Path(folder) / name)
        program = Path(folder) / "page.py"
        program.write_text("\n".join(BLOCK.findall(text)), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(DOCS.parent)}
        command = [sys.executable, program.name]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        for file in files:
            shutil.copyfile(Path(folder) / file, PICTURES / file)


if __name__ == "__main__":
    main()
