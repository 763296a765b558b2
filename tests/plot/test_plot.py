"""Pictures of trajectories and fits: their lines, labels and axes."""

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxmech.plot.fit import fit_over_data, residuals
from jaxmech.plot.trajectories import drift, energy_drift, quantile_bands
from tests.identify.swings import made_up

TS = np.linspace(0, 2, 9)
VALUES = np.random.default_rng(1).normal(size=(50, 9))


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_bands_show_the_quantiles() -> None:
    ax = quantile_bands(TS, VALUES, name="x [m]")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("t [s]", "x [m]")
    assert np.allclose(ax.lines[0].get_ydata(), np.median(VALUES, axis=0))
    outer = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert outer.max() == pytest.approx(np.quantile(VALUES, 0.95, axis=0).max())
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["5 to 95 %", "25 to 75 %", "median"]


def test_drift_is_logarithmic_and_accepts_zeros() -> None:
    ax = drift(TS, np.zeros((4, 9)), np.full((4, 9), 1e-15))
    assert ax.get_yscale() == "log"
    assert len(ax.lines) == 2  # without holonomic constraints there is nothing to show of them
    assert len(drift(TS, np.abs(VALUES), np.abs(VALUES)).lines) == 4
    assert len(drift(TS, np.zeros((4, 9))).lines) == 2


def test_energy_is_measured_from_the_start() -> None:
    energy = 5 + np.outer([1.0, 3.0], TS) * 1e-6
    ax = energy_drift(TS, energy)
    assert ax.lines[-1].get_ydata()[-1] == pytest.approx(6e-6)
    assert ax.get_ylabel() == "|E - E(start)| [J]"


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: quantile_bands(TS, VALUES, ax=ax),
        lambda ax: drift(TS, np.abs(VALUES), ax=ax),
        lambda ax: energy_drift(TS, VALUES, ax=ax),
    ],
)
def test_given_axes_are_used(draw, tmp_path: Path) -> None:
    figure, ax = plt.subplots()
    assert draw(ax) is ax
    assert plt.get_fignums() == [figure.number]
    figure.savefig(tmp_path / "drawn.png")
    assert draw(None) is not ax


@pytest.mark.parametrize("draw", [fit_over_data, residuals])
def test_lines_of_a_fit_are_interrupted_in_a_gap(draw) -> None:
    fit = made_up()
    recording, values = fit.train.recordings[0], fit.train.values[0]
    ts, width = 0.1 * np.arange(20), values.shape[1]
    later = ts + np.where(np.arange(20) >= 12, 100.0, 0.0)
    for times, gaps in ((ts, 0), (later, 1)):
        rows = np.zeros((20, width))
        moved = replace(recording, ts=times, observed=rows, weights=None)
        part = replace(fit.train, recordings=(moved,), values=(rows + 0.1,))
        ax = draw(replace(fit, train=part))
        line = max(ax.lines, key=lambda x: len(x.get_xdata()) * (x.get_marker() == "None"))
        unknown = np.flatnonzero(np.isnan(np.asarray(line.get_ydata(), float)))
        assert len(unknown) == gaps
        if gaps:
            x = np.asarray(line.get_xdata())
            assert later[11] < x[unknown[0]] < later[12]
