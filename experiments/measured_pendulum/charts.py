"""The pictures of the study: cross-validation of the laws, and errors by segment."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from experiments.measured_pendulum.study import MRAD, Comparison, rms
from jaxmech.plot.panels import BLUE, GREY, ORANGE


def laws(found: Comparison, ax: Axes | None = None) -> Axes:
    """Plot the held-out error of every fold by law, and their mean; the selected law in colour."""
    if ax is None:
        size = (8, 0.4 * len(found.held_out) + 1.4)
        ax = plt.subplots(figsize=size, layout="constrained")[1]
    for row, (name, folds) in enumerate(found.held_out.items()):
        color = ORANGE if name == found.chosen else BLUE
        ax.plot(MRAD * folds, np.full(len(folds), row), "o", color=color, alpha=0.4)
        ax.plot(MRAD * rms(folds), row, "|", color=color, markersize=18, markeredgewidth=2.5)
    ax.set_yticks(range(len(found.held_out)), list(found.held_out))
    ax.set_xscale("log")
    ax.invert_yaxis()
    ax.set(xlabel="RMS error of held-out segments from their first sample [mrad]")
    ax.set_title("Cross-validation of friction laws: folds and their mean")
    ax.grid(alpha=0.3, axis="x", which="both")
    return ax


def errors(found: Comparison, ax: Axes | None = None) -> Axes:
    """Plot the RMS error of every segment, published and fitted."""
    ax = plt.subplots(figsize=(8, 3.6), layout="constrained")[1] if ax is None else ax
    styles = {"published": (GREY, "s"), "angles": (BLUE, "o"), "bodies": (ORANGE, "x")}
    for who, (color, marker) in styles.items():
        both = np.concatenate([found.errors[who]["train"], found.errors[who]["validation"]])
        label = who if who == "published" else f"fitted in {who}"
        ax.semilogy(1 + np.arange(both.size), MRAD * both, marker, color=color, label=label)
    border = found.errors["published"]["train"].size + 0.5
    ax.axvline(border, color=GREY, linestyle=":")
    ax.text(border, ax.get_ylim()[1], " validation", va="top", color=GREY)
    ax.set(xlabel="segment, in the order of recording", ylabel="RMS error [mrad]")
    ax.set_title(f"The {found.pendulum} pendulum, simulated from each segment's first sample")
    ax.grid(alpha=0.3, which="both")
    ax.legend()
    return ax
