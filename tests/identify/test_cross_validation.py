"""Which candidate the recordings choose: the rules on given numbers, and a choice that is known."""

from dataclasses import replace

import numpy as np
import pytest

import jaxmech as jm
from jaxmech import FixedSteps
from jaxmech.identify import Descent, Recording, TrustRegion
from jaxmech.identify import cross_validation as module
from jaxmech.identify.cross_validation import (
    CrossValidation,
    cross_validate,
    errors_with_fitted_starts,
)
from jaxmech.identify.identifiable import Identifiable, Settings


def compared(errors, numbers, rule="one-standard-error", names="abc"):
    errors = np.asarray(errors, float)
    folds = np.arange(errors.shape[1])
    converged = np.ones(errors.shape, bool)
    return CrossValidation(
        tuple(names[: len(errors)]), np.array(numbers), errors, folds, converged, rule, "recorded"
    )


def test_scores_and_standard_errors() -> None:
    found = compared([[1.0, 2.0, 3.0], [2.0, 3.0, 5.0]], [1, 2])
    np.testing.assert_allclose(found.scores, [2.0, 10 / 3])
    np.testing.assert_allclose(found.standard_errors[0], 1 / np.sqrt(3))
    more, error = found.excess  # 1, 1, 2 over the best
    np.testing.assert_allclose(more, [0.0, 4 / 3])
    np.testing.assert_allclose(error, [0.0, np.std([1, 1, 2], ddof=1) / np.sqrt(3)])


def test_recordings_of_a_fold_count_once() -> None:
    folds = np.array([0, 0, 1])
    found = CrossValidation(
        ("a",), np.ones(1, int), np.array([[1.0, 3.0, 6.0]]), folds, np.ones((1, 2), bool),
        "minimum", "recorded",
    )  # fmt: skip
    np.testing.assert_array_equal(found.by_fold, [[2.0, 6.0]])


@pytest.mark.parametrize(
    ("errors", "numbers", "rule", "chosen"),
    [
        ([[1.0, 1.4, 1.2], [1.1, 1.2, 1.1]], [1, 3], "one-standard-error", "a"),
        ([[1.0, 1.4, 1.2], [1.1, 1.2, 1.1]], [1, 3], "minimum", "b"),
        # the same means, but a is worse in every fold: its folds are hard for b, too
        ([[1.1, 2.2, 3.3], [1.0, 2.1, 3.2]], [1, 3], "one-standard-error", "b"),
        ([[1.0, 1.4, 1.2], [1.1, 1.2, 1.1]], [3, 1], "one-standard-error", "b"),
        ([[1.0, 1.2], [1.2, 1.0], [1.0, 1.0]], [2, 2, 3], "one-standard-error", "a"),
        ([[np.inf, 0.1], [1.0, 1.0]], [1, 2], "one-standard-error", "b"),
        ([[np.inf, 0.1], [1.0, 1.0]], [1, 2], "minimum", "b"),
    ],
)
def test_the_rules(errors, numbers, rule, chosen) -> None:
    found = compared(errors, numbers, rule)
    assert found.chosen == chosen
    assert chosen in found.reason
    assert f"* {chosen}" in repr(found)
    assert ("failed" in repr(found)) == np.isinf(errors).any()


def test_the_reason_names_the_best_too() -> None:
    found = compared([[1.0, 1.4, 1.2], [1.1, 1.2, 1.1]], [1, 3])
    assert found.reason.startswith("a is the simplest within one standard error of b, which has")
    text = "a has the smallest error, and no simpler candidate is within one standard error of it"
    assert compared([[1.0, 1.1], [2.0, 2.0]], [3, 1]).reason == text


def test_fits_that_have_not_converged_are_named() -> None:
    found = compared([[1.0, 1.1], [2.0, 2.0]], [3, 1])
    assert "converged" not in repr(found)
    found = replace(found, converged=np.array([[True, False], [True, True]]))
    assert "WARNING: Not converged, so that errors may be too large: a (1 of 2 fits)" in repr(found)


@pytest.mark.slow
def test_convergence_is_recorded_and_kept(tmp_path) -> None:
    few = Settings(optimizer=TrustRegion(evaluations=1))
    options = {"folds": 2, "settings": few, "folder": tmp_path}
    for _ in range(2):  # computed, and read from the folder
        found = cross_validate({"free": FREE}, swings(), **options)
        np.testing.assert_array_equal(found.converged, [[False, False]])


def lagrangian(q, v, t, p):
    return (v @ v - p["k"] * q @ q) / 2


def damper(q, v, t, p):
    return -p["c"] * v


FREE = Identifiable(jm.System(lagrangian, coordinates=("x",)), {"k": 8.0})
DAMPED = Identifiable(
    jm.System(lagrangian, force=damper, coordinates=("x",)), {"k": 8.0, "c": 0.3},
    bounds={"c": (0, None)},
)  # fmt: skip
TS = np.linspace(0.0, 2.0, 41)


def swings(off: float = 0.0):
    """x'' = -9.01 x - 0.2 x', exactly; the recorded starts are off."""
    rate = np.sqrt(9.01 - 0.01)
    return [
        Recording(TS, a * np.exp(-0.1 * TS) * np.cos(rate * TS), [a + off], [-0.1 * a])
        for a in (0.5, 1.0, 1.5, 2.0)
    ]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    candidates = {"free": FREE, "damped": DAMPED}
    return cross_validate(candidates, swings(0.01), folds=2, score="fitted", folder=folder), folder


@pytest.mark.slow
def test_the_true_model_is_chosen(kept) -> None:
    found, _ = kept
    assert found.chosen == "damped"
    assert found.numbers.tolist() == [1, 2]
    assert found.folds.tolist() == [0, 0, 1, 1]
    assert found.scores[0] > 5 * found.scores[1]
    assert found.scores[1] < 5e-3  # half of what the recorded starts are off


@pytest.mark.slow
def test_stored_results_are_not_recomputed(kept, monkeypatch) -> None:
    found, folder = kept
    candidates = {"free": FREE, "damped": DAMPED}

    def not_again(*_args, **_options):
        raise AssertionError

    monkeypatch.setattr(module, "fit_identifiable", not_again)
    again = cross_validate(candidates, swings(0.01), folds=2, score="fitted", folder=folder)
    np.testing.assert_array_equal(again.errors, found.errors)
    with pytest.raises(ValueError, match=r"`folder` .* holds another cross-validation"):
        cross_validate(candidates, swings(0.2), folds=2, score="fitted", folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["lagrangian", "observe", "start_sd", "wraps"])
def test_results_of_another_problem_are_not_taken(kept, what: str) -> None:
    subject, given = FREE, swings(0.01)
    if what == "lagrangian":
        stiffening = lambda q, v, t, p: lagrangian(q, v, t, p) - q[0] ** 4  # noqa: E731
        subject = replace(FREE, system=jm.System(stiffening, coordinates=("x",)))
    elif what == "observe":
        subject = replace(FREE, observe=lambda q, v, t, p: 2 * q)
    elif what == "wraps":
        given = [replace(one, wraps={0: 9.0}) for one in given]
    else:
        given = [replace(one, start_sd=(0.1, 0.1)) for one in given]
    candidates = {"free": subject, "damped": DAMPED}
    with pytest.raises(ValueError, match=r"`folder` .* holds another cross-validation"):
        cross_validate(candidates, given, folds=2, score="fitted", folder=kept[1])


@pytest.mark.slow
def test_errors_with_fitted_starts() -> None:
    truth, fine = {"k": 9.01, "c": 0.2}, Settings(steps=FixedSteps(1, max_step=0.01))
    exact = errors_with_fitted_starts(DAMPED, truth, swings(0.1), fine)
    assert exact.shape == (4,)
    assert exact.max() < 2e-8  # of the integration
    held = [Recording(r.ts, r.observed, r.q0, r.v0, 1.0, (1e-9, 1e-9)) for r in swings(0.1)]
    stuck = errors_with_fitted_starts(DAMPED, truth, held, fine)
    assert stuck.min() > 0.05  # the start is said to be known


def test_fitted_starts_that_have_not_converged_are_reported(monkeypatch) -> None:
    monkeypatch.setattr(module, "_REFIT", TrustRegion(evaluations=1))
    with pytest.warns(UserWarning, match="initial states have not converged"):
        errors_with_fitted_starts(
            DAMPED, {"k": 7.0, "c": 0.2}, swings(0.1), Settings(steps=FixedSteps(1, max_step=0.01))
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "`folds` must lie between 2 and the number of recordings, 4, but is 1"),
        ({"folds": 5}, "`folds` must lie between 2"),
        ({"candidates": {}}, "`candidates` must hold at least one"),
    ],
)
def test_invalid_arguments(change, message) -> None:
    arguments = {"candidates": {"free": FREE}, "folds": 2, **change}
    with pytest.raises(ValueError, match=message):
        cross_validate(arguments.pop("candidates"), swings(), **arguments)


def test_held_out_recordings_are_not_used() -> None:
    import optax

    patient = Settings(optimizer=Descent(optax.adam(0.1), patience=3))
    with pytest.raises(ValueError, match="without `patience`"):
        cross_validate({"free": FREE}, swings(), folds=2, settings=patient)


@pytest.mark.slow
def test_a_candidate_that_cannot_be_fitted_is_named() -> None:
    wrong = Identifiable(FREE.system, {"k": 8.0}, bounds={"k": (10, None)})
    with pytest.raises(ValueError, match="Candidate wrong: Argument `params0` must begin inside"):
        cross_validate({"wrong": wrong}, swings(), folds=2)
