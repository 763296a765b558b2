"""Comparison of machines: the same cases, from the files `speed.json` of their runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.speed.charts import add_legend, over_batches, panels
from experiments.speed.report import NONE, device, grid, in_brackets
from jaxmech.config.errors import InputError
from jaxmech.plot.panels import styled

NATIVE_ROUTES = ("jaxmech, bare kernel", "jaxmech, default")
Speeds = Mapping[tuple[str, int, str], Mapping[str, Any]]  # outcome by case, batch and precision


def compare(files: Sequence[Path], out: Path) -> int:
    """Print a table of the devices in these files, and write it and a picture to a folder."""
    machines = {label: speeds for file in files for label, speeds in _devices(file).items()}
    if len(machines) < 2:
        raise InputError("--compare needs files with two different devices or machines in all")
    text = as_table(machines)
    out.mkdir(parents=True, exist_ok=True)
    (out / "compare.md").write_text(text + "\n", encoding="utf-8")
    with styled():
        picture(machines).savefig(out / "compare.png")
    print(f"{text}\n\nWritten to {out}/: compare.md, compare.png", flush=True)
    return 0


def _devices(file: Path) -> dict[str, Speeds]:
    """The outcomes of the first known route on each device of a file, by the name of the device."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        devices, rows = content["devices"], content["table"] + content["scaling"]
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not a speed.json of this version of the benchmark") from error
    found: dict[str, dict] = {platform: {} for platform in devices}
    for row in rows:
        for outcome in (row["outcomes"].get(name) for name in reversed(NATIVE_ROUTES)):
            if outcome is not None and outcome["steps_per_second"]:
                key = row["title"], row["batch"], row["precision"]
                found[row["platform"]][key] = outcome
    return {f"{file}, {device(known)}": found[platform] for platform, known in devices.items()}


def as_table(machines: Mapping[str, Speeds]) -> str:
    """Format speed, share of the peak, compile time and ratio to the first, by case and device."""
    letters = [chr(ord("A") + k) for k in range(len(machines))]
    head = [f"{x}, M steps/s (of peak, compile)" for x in letters]
    lines = [["case", "batch", "precision", *head, *(f"{x} / A" for x in letters[1:])]]
    for key in dict.fromkeys(key for speeds in machines.values() for key in speeds):
        known = [speeds.get(key) for speeds in machines.values()]
        speed = [None if x is None else x["steps_per_second"] for x in known]
        cells = [
            NONE if y is None else f"{y / 1e6:,.4g}{in_brackets(x)}"
            for x, y in zip(known, speed, strict=True)
        ]
        ratios = [f"{y / speed[0]:.3g}×" if y and speed[0] else NONE for y in speed[1:]]
        lines.append([key[0], f"{key[1]:,}", key[2], *cells, *ratios])
    legend = [f"- {x}: {name}" for x, name in zip(letters, machines, strict=True)]
    return "\n".join([*legend, "", grid(lines)])


def picture(machines: Mapping[str, Speeds]) -> Figure:
    """Plot speed over the size of the batch, with a panel for each case."""
    titles = list(dict.fromkeys(key[0] for speeds in machines.values() for key in speeds))
    figure, axes = panels(len(titles))
    for title, ax in zip(titles, axes, strict=False):
        over_batches(ax, title)
        for k, (name, speeds) in enumerate(machines.items()):
            for precision, style in (("float64", "-o"), ("float32", "--s")):
                points = sorted(
                    (key[1], x["steps_per_second"])
                    for key, x in speeds.items()
                    if (key[0], key[2]) == (title, precision)
                )
                if points:
                    label = f"{name}, {precision}"
                    ax.plot(*zip(*points, strict=True), style, color=f"C{k}", label=label)
    add_legend(figure, ncols=1, fontsize=7)
    return figure
