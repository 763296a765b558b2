"""The chart of speeds and the thumbnails of the examples on the front page of the documentation.

`experiments.pictures` writes them; the other pictures of that page are drawn by its own code.
"""

import json
import os
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from jaxmech.plot.panels import BLUE, GREY, INK, styled

ROOT = Path(__file__).resolve().parents[1]
CHAIN = 6  # bodies
_WIDTH = 360  # pixels of a thumbnail

Bars = list[tuple[str, float]]  # names and million steps per second


def thumbnail(name: str, file: Path) -> None:
    """Run an example, and write its first picture."""
    mpl.use("Agg")
    plt.close("all")
    before = Path.cwd()
    os.chdir(ROOT / "examples")
    try:
        runpy.run_path(f"{name}.py")
    finally:
        os.chdir(before)
    figure = plt.figure(plt.get_fignums()[0])
    figure.savefig(file, dpi=_WIDTH / figure.get_figwidth())


def draw_speeds(file: Path) -> None:
    """Draw speeds beside those of other programs, from stored measurements."""
    with styled():
        figure, axes = plt.subplots(1, 2, figsize=(9.0, 2.9))
        _bars(axes[0], "Double pendulum on two CPU cores", list(cpu_speeds()))
        _bars(axes[1], f"Chain of {CHAIN} spatial bodies on an H100", list(gpu_speeds()))
        figure.savefig(file, dpi=130)


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
    return json.loads((ROOT / "docs" / name).read_text(encoding="utf-8"))


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
