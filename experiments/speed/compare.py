"""Two machines or more: the same cases, from the files `speed.json` of their runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.speed.charts import add_legend, over_batches, panels
from experiments.speed.report import device, grid
from jaxmech.config.errors import InputError

NATIVE_ROUTES = ("jaxmech, bare kernel", "jaxmech, default")
Key = tuple[str, int, str]  # case, batch, precision
Speeds = Mapping[Key, Mapping[str, Any]]  # by case: the outcome of the first known route


def compare(files: Sequence[Path], out: Path) -> int:
    """Print a table of the devices in these files, and write it and a picture to a folder."""
    machines = {label: speeds for file in files for label, speeds in _devices(file).items()}
    if len(machines) < 2:
        raise InputError("--compare needs files with two different devices or machines in all")
    text = as_table(machines)
    out.mkdir(parents=True, exist_ok=True)
    (out / "compare.md").write_text(text + "\n", encoding="utf-8")
    picture(machines).savefig(out / "compare.png", dpi=150)
    print(f"{text}\n\nWritten to {out}/: compare.md, compare.png", flush=True)
    return 0


def _devices(file: Path) -> dict[str, Speeds]:
    """What was measured on each device of a file, by its name."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        devices, measured = content["devices"], content["table"] + content["scaling"]
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is not a speed.json of this version of the benchmark") from error
    found: dict[str, Speeds] = {}
    for platform, known in devices.items():
        here = [x for x in measured if x["platform"] == platform]
        found[f"{file}, {device(known)}"] = {
            (x["title"], x["batch"], x["precision"]): outcome
            for x in here
            if (outcome := _native(x["outcomes"])) is not None
        }
    return found


def _native(outcomes: Mapping[str, Any]) -> Mapping[str, Any] | None:
    known = [outcomes[x] for x in NATIVE_ROUTES if x in outcomes]
    return next((x for x in known if x["steps_per_second"]), None)


def as_table(machines: Mapping[str, Speeds]) -> str:
    """Cases down, devices across: speed, share of the peak, ratio to the first, compile time."""
    letters = [chr(ord("A") + k) for k in range(len(machines))]
    head = [f"{x}, M steps/s (of peak, compile)" for x in letters]
    rows = [["case", "batch", "precision", *head, *(f"{x} / A" for x in letters[1:])]]
    for key in dict.fromkeys(key for speeds in machines.values() for key in speeds):
        known = [speeds.get(key) for speeds in machines.values()]
        cells = [_cell(x) for x in known]
        ratios = [_ratio(x, known[0]) for x in known[1:]]
        rows.append([key[0], f"{key[1]:,}", key[2], *cells, *ratios])
    legend = [f"- {x}: {name}" for x, name in zip(letters, machines, strict=True)]
    return "\n".join([*legend, "", grid(rows)])


def _cell(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return "–"
    share = outcome["share_of_peak"]
    of_peak = "–" if share is None else f"{100 * share:.2g} %"
    speed = outcome["steps_per_second"] / 1e6
    return f"{speed:,.4g} ({of_peak}, {outcome['compile_seconds']:.1f} s)"


def _ratio(outcome: Mapping[str, Any] | None, base: Mapping[str, Any] | None) -> str:
    if outcome is None or base is None:
        return "–"
    return f"{outcome['steps_per_second'] / base['steps_per_second']:.3g}×"


def picture(machines: Mapping[str, Speeds]) -> Figure:
    """Speed over the size of the batch, a panel for each case."""
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
