"""Pictures and tables from the result files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from jaxmech.plot.panels import COLORS, labelled, styled

DECADES = 1e-10, 1e-4  # of the tolerances of a slope
TARGETS = 1e-6, 1e-8  # errors for which times are told
TITLES = {
    "andrews": "Andrews' squeezing mechanism, 0.03 s",
    "car_axis": "car axis, 3 s",
    "slider_crank": "slider-crank, 2 s",
    "double_pendulum": "double pendulum, 3 s",
    "spherical_pendulum": "spherical pendulum, 5 s",
    "four_bars": "two four-bars through singular poses, 2 s",
    "rolling_disc": "rolling disc, 2 s",
    "governor": "governor with a damper of 40 kN s/m, 1 s (stiff)",
}

_STYLES = ("o-", "s--", "x:")
Found = dict[str, Any]


def slope(found: Found) -> float | None:
    """d log error / d log tolerance over six decades of tolerances."""
    low, high = DECADES
    rows = [r for r in found["rows"] if low / 2 < r["setting"] < 2 * high and r["error"]]
    if len(rows) < 4:
        return None
    logs = np.log10([[r["setting"], r["error"]] for r in rows])
    return float(np.polyfit(*logs.T, 1)[0])


def time_at(found: Found, target: float) -> float | None:
    """Seconds per trajectory for a given error, by log-log interpolation between settings.

    None if no setting is so accurate; the time of the coarsest one if that is more accurate.
    """
    points = [(r["error"], r["seconds"] / found["trajectories"]) for r in found["rows"]]
    before = None
    for error, seconds in points:
        if error is not None and error <= target:
            if before is None:
                return seconds
            errors = np.log([before[0], max(error, 1e-17)])
            times = np.log(np.maximum([before[1], seconds], 1e-9))  # below what a clock shows
            part = (np.log(target) - errors[0]) / (errors[1] - errors[0])
            return float(np.exp(times[0] + part * (times[1] - times[0])))
        before = None if error is None else (error, seconds)
    return None


def summary_of(found: Found) -> str:
    """Summarize a contender in a line."""
    good = [r for r in found["rows"] if r["error"] is not None]
    if not good:
        return "no result"
    best, steep = min(good, key=lambda r: r["error"]), slope(found)
    told = "" if steep is None else f"slope {steep:.2f}, "
    return f"{told}least error {best['error']:.1e} in {best['seconds']:.3g} s"


@styled()
def draw(name: str, found: Found, path: Path) -> None:
    """Plot errors over times, of one trajectory and of a batch."""
    kinds = [kind for kind in ("single", "batch") if found.get(kind)]
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(5.2 * len(kinds) + 2.4, 4.4), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    names = list(dict.fromkeys(one for kind in kinds for one in found[kind]))
    for ax, kind in zip(axes[0], kinds, strict=True):
        runs = {one: _times_and_errors(found[kind][one]) for one in names if one in found[kind]}
        for k, (one, (times, errors)) in enumerate(runs.items()):
            cost, size = np.asarray(times, float), np.asarray(errors, float)
            known = np.isfinite(size) & (size > 0)
            style = {"linewidth": 1, "label": one, "color": COLORS[k % len(COLORS)]}
            ax.loglog(cost[known], size[known], _STYLES[k // len(COLORS) % len(_STYLES)], **style)
        labelled(ax, "processor time of a trajectory [s]", "error at the end").margins(0.04)
        ax.set_title(_kind(kind, found))
    for ax in axes[0][1:]:
        ax.set_ylabel("")
    figure.suptitle(TITLES.get(name, name))
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside right upper", frameon=False)
    figure.savefig(path)
    plt.close(figure)


def _times_and_errors(rows: Found) -> tuple[list[float], list[float]]:
    good = [row for row in rows["rows"] if row["error"]]
    times = [row["seconds"] / rows["trajectories"] for row in good]
    return times, [row["error"] for row in good]


def _kind(kind: str, found: Found) -> str:
    if kind == "single":
        return "one trajectory"
    others = sorted({x["trajectories"] for x in found.get("batch", {}).values()} - {found["size"]})
    fewer = f" (diffrax: {', '.join(f'{x:,}' for x in reversed(others))})" if others else ""
    return f"{found['size']:,} trajectories{fewer}"


def tables(found: dict[str, Found]) -> str:
    """All results as Markdown."""
    lines = [
        "# Work and precision",
        "",
        "Made by `python -m experiments.work_precision`, from the files beside it. Errors are",
        "those of q and v at the end, relative to max(1, |x|); in a batch the largest. Times are",
        "processor microseconds of a trajectory, the fastest of up to seven rounds, without",
        "compilation, to an error of 1e-6 and of 1e-8 (log-log interpolation between settings; –",
        "where no setting is so accurate). A slope is d log error / d log tolerance over",
        "tolerances of 1e-4 to 1e-10. diffrax and scipy have the law of motion of jaxmech, without",
        "projection.",
        "",
    ]
    for name, one in found.items():
        lines += _mixed(one) if "rows" in one else _case(name, one)
    return "\n".join(lines).rstrip() + "\n"


def _case(name: str, found: Found) -> Iterator[str]:
    single, batch = found.get("single", {}), found.get("batch", {})
    yield from (f"## {TITLES.get(name, name)}", "")
    yield f"Batch: {_kind('batch', found)}. A contender gets no finer setting after"
    yield from (f"a run of more than {found['rules']['longest']:g} s.", "")
    yield "| | one: 1e-6 | 1e-8 | least error | slope | batch: 1e-6 | 1e-8 | slope |"
    yield "|---|---|---|---|---|---|---|---|"
    for contender, one in single.items():
        errors = [r["error"] for r in one["rows"] if r["error"] is not None]
        cells = [contender, *(_micro(time_at(one, x)) for x in TARGETS)]
        cells += [f"{min(errors):.0e}" if errors else "–", _slope(contender, one)]
        many = batch.get(contender)
        cells += ["", "", ""] if many is None else [
            *(_micro(time_at(many, x)) for x in TARGETS), _slope(contender, many)
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    yield from ("", f"![Error against processor time]({name}.png)", "")


def _mixed(found: Found) -> Iterator[str]:
    yield f"## {found['size']:,} mixed double pendulums, 3 s"
    yield ""
    yield "Released at up to 0.1 to 3 rad. The typical error is the geometric mean. RK4 has the"
    yield "coarsest step (to 5 %) whose worst error is that of the fastest method of jaxmech."
    yield "diffrax has the same tolerance, and the first finer one with the same typical error."
    yield ""
    yield "| | tolerance or steps | worst error | typical | evaluations | time [ms] | ratio |"
    yield "|---|---|---|---|---|---|---|"
    fastest = min(row["seconds"] for row in found["rows"])
    for row in found["rows"]:
        setting = row["setting"]
        cells = [row["name"], f"{setting:,.0f}" if setting > 1 else f"{setting:.0e}"]
        cells += [f"{row[key]:.1e}" for key in ("error", "typical")]
        cells += [f"{row['evaluations'] / 1e6:.2f} million", f"{row['seconds'] * 1e3:.3g}"]
        cells.append(f"{row['seconds'] / fastest:.1f}")
        yield f"| {' | '.join(cells)} |"
    yield ""


def _micro(seconds: float | None) -> str:
    return (
        "–"
        if seconds is None
        else f"{seconds * 1e6:,.3g}"
        if seconds < 1e-3
        else (f"{seconds * 1e6:,.0f}")
    )


def _slope(contender: str, found: Found) -> str:
    steep = None if contender.startswith("RK4") else slope(found)
    return "–" if steep is None else f"{steep:.2f}"
