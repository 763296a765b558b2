"""Fits computed by other processes have the same results as local ones."""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from distributed.protocol import pickle as pickles

import jaxmech as jm
from jaxmech.identify import Recording, cross_validate, fit

TS = np.linspace(0.0, 1.0, 21)
SWINGS = [Recording(TS, a * np.cos(3 * TS), [a], [0.0]) for a in (0.5, 1.0)]
SPRING = jm.System(lambda q, v, t, p: (v @ v - p["k"] * q @ q) / 2, coordinates=("x",))
WEIGHT = jm.System(lambda q, v, t, p: v @ v / 2 - p["g"] * q[0], coordinates=("x",))


def far(function: Any, items: Iterable[Any]) -> Iterator[Any]:
    """A map that pickles functions, items and results, as between processes."""
    for item in items:
        there, given = pickle.loads(pickles.dumps((function, item)))
        yield pickle.loads(pickles.dumps(there(given)))


@pytest.mark.slow
def test_starting_points_are_fitted_elsewhere(tmp_path) -> None:
    options = {
        "bounds": {"k": (1.0, 20.0)},
        "multistart": jm.identify.MultiStart(count=8, refine=2),
        "initial_states": "fixed",
    }
    given = list[Any]()

    def noted(function: Any, items: Iterable[Any]) -> Iterator[Any]:
        items = list(items)
        given.extend(items)
        return far(function, items)

    away = fit(SPRING, SWINGS, {"k": 8.0}, workers=noted, folder=tmp_path / "away", **options)
    here = fit(SPRING, SWINGS, {"k": 8.0}, folder=tmp_path / "here", **options)
    assert len(given) == 2
    assert float(away.params["k"]) == float(here.params["k"]) == pytest.approx(9.0)
    assert away.optimization.history == here.optimization.history
    assert {p.name for p in (tmp_path / "away").iterdir()} == {"start-0", "start-1"}


@pytest.mark.slow
def test_folds_are_fitted_elsewhere(tmp_path) -> None:
    candidates = {
        "spring": jm.identify.Identifiable(SPRING, {"k": 8.0}),
        "weight": jm.identify.Identifiable(WEIGHT, {"g": 8.0}),
    }
    away = cross_validate(candidates, SWINGS, folds=2, workers=far, folder=tmp_path)
    here = cross_validate(candidates, SWINGS, folds=2)
    assert away.chosen == "spring"
    assert away.errors.tobytes() == here.errors.tobytes()

    def never(function: Any, items: Iterable[Any]) -> Iterator[Any]:
        done = [function(item) for item in items]  # from the files of the first time
        assert len(done) == 4
        return iter(done)

    again = cross_validate(candidates, SWINGS, folds=2, workers=never, folder=tmp_path)
    assert again.errors.tobytes() == here.errors.tobytes()
