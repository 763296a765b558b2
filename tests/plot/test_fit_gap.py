"""Pictures of a fit over a recording with a gap."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxmech.plot.fit import fit_over_data, residuals
from tests.identify.swings import made_up


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
        plt.close("all")
