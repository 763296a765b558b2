"""Fitted parameters beside their bounds and priors."""

from dataclasses import replace

import numpy as np
import pytest

from jaxmech.plot.fit import parameter_intervals
from tests.identify.swings import made_up


def test_bounds_and_priors_are_drawn_where_they_are() -> None:
    fit = replace(made_up(), bounds=np.array([[8.5, np.inf]]), priors=np.array([[9.1, 0.1]]))
    (ax,) = parameter_intervals(fit).axes
    names = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    assert {*names} == {"prior", "beyond a bound", "value and its interval"}
    bar = names["prior"].patches[0]
    assert (bar.get_x(), bar.get_width()) == pytest.approx((9.1 - 0.196, 0.392))
    assert names["beyond a bound"].get_x() + names["beyond a bound"].get_width() == 8.5
    low, high = fit.uncertainty.reliable_interval()[0]
    (line,) = names["value and its interval"][2]
    np.testing.assert_allclose(line.get_segments()[0][:, 0], (low, high))
    assert ax.get_xlim()[0] < 8.5


def test_a_far_bound_does_not_squeeze_the_interval() -> None:
    fit = replace(made_up(), bounds=np.array([[-1e6, np.inf]]))
    (ax,) = parameter_intervals(fit).axes
    assert ax.get_xlim()[0] > 0
    assert ax.get_legend_handles_labels()[1] == ["value and its interval"]


def test_what_is_not_determined_is_an_empty_dot() -> None:
    fit = made_up()
    (white,) = fit.uncertainty.covariances
    unknown = replace(white, determined=np.array([False]))
    fit = replace(fit, uncertainty=replace(fit.uncertainty, covariances=(unknown,)))
    (ax,) = parameter_intervals(fit).axes
    assert ax.get_legend_handles_labels()[1] == ["not determined"]
