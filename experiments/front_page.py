"""The pictures of the front page of the documentation and of README.md.

python -m experiments.front_page pictures    # those that the code of README.md draws
python -m experiments.front_page speed       # the chart of speeds, from stored measurements
python -m experiments.front_page examples    # a thumbnail of each example, in minutes
"""

import argparse
import json
import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from jaxmech.plot.style import BLUE, GREY, INK, STYLE

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
WIDTH = 360  # pixels of a thumbnail
CHAIN = 6  # bodies

Bars = list[tuple[str, float]]  # names and million steps per second


def pictures() -> None:
    """Run the code of README.md in the folder of its pictures."""
    code = "\n".join(BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    os.chdir(DOCS / "pictures")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def examples() -> None:
    """Run every example, and keep its first picture."""
    mpl.use("Agg")
    for program in sorted((ROOT / "examples").glob("*.py")):
        os.chdir(program.parent)
        plt.close("all")
        runpy.run_path(str(program))
        file = DOCS / "examples" / "thumbnails" / f"{program.stem}.png"
        file.parent.mkdir(exist_ok=True)
        figure = plt.figure(plt.get_fignums()[0])
        figure.savefig(file, dpi=WIDTH / figure.get_figwidth())
        print(file)


def speed() -> None:
    """Draw the chart of speeds beside other programs."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9.0, 2.9))
        _bars(axes[0], "Double pendulum on two CPU cores", list(cpu_speeds()))
        _bars(axes[1], f"Chain of {CHAIN} spatial bodies on an H100", list(gpu_speeds()))
        figure.savefig(DOCS / "pictures" / "speed_peers.png", dpi=130)
    print(DOCS / "pictures" / "speed_peers.png")


def cpu_speeds() -> Iterator[tuple[str, float]]:
    """Million steps per second of a double pendulum by each program, on two cores."""
    case = _stored("speed/speed.json")["table"][0]["outcomes"]
    for route, name in (
        ("jaxmech, default", "jaxmech, default"),
        ("straight-line C", "C code of bare steps, gcc -O3"),
        ("diffrax", "diffrax"),
        ("MuJoCo C rollout", "MuJoCo, C rollout"),
    ):
        yield name, case[route]["steps_per_second"] / 1e6


def gpu_speeds() -> Iterator[tuple[str, float]]:
    """Million steps per second of a chain by each program, on an H100."""
    for engine in ("jaxmech", "MJX"):
        runs = [
            one
            for one in _stored("gpu/cuda.json")["chains"]
            if (one["engine"], one["bodies"], one["type"]) == (engine, CHAIN, "float64")
        ]
        best = max(runs, key=lambda one: one["steps_per_second"])
        yield f"{engine}, {best['batch']:,} chains", best["steps_per_second"] / 1e6


def _stored(name: str) -> Any:
    return json.loads((DOCS / name).read_text(encoding="utf-8"))


def _bars(ax: Axes, title: str, bars: Bars) -> None:
    names, speeds = zip(*bars, strict=True)
    colors = [BLUE if name.startswith("jaxmech") else GREY for name in names]
    drawn = ax.barh(range(len(bars)), speeds, 0.6, color=colors)
    ax.bar_label(
        drawn, [f"{x:,.0f}" if x >= 1000 else f"{x:.3g}" for x in speeds], padding=4, color=INK
    )
    ax.set_xscale("log")
    ax.set_xlim(min(speeds) / 4, max(speeds) * 12)
    ax.set_yticks(range(len(bars)), names)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("million steps per second, float64")
    ax.set_title(title)


def main() -> None:
    made = {"pictures": pictures, "speed": speed, "examples": examples}
    parser = argparse.ArgumentParser(description="Draw the pictures of the front page.")
    parser.add_argument("kind", nargs="*", choices=[*made], default=[*made])
    for kind in parser.parse_args().kind:
        made[kind]()


if __name__ == "__main__":
    main()
