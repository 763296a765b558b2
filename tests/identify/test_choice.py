"""Choices of measurements, by optimal designs of textbooks."""

from dataclasses import replace
from itertools import combinations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.identify import AOptimal, COptimal, DOptimal, choose_measurements
from jaxmech.identify.result import Information, Noise
from jaxmech.identify.storage import made_up

LINE = np.linspace(-1.0, 1.0, 21)
OF_LINE = np.stack([np.ones(21), LINE], axis=1)


def test_exponential_decay_is_sampled_at_its_start_and_its_time_constant() -> None:
    """D-optimal for a exp(-k t): half of the samples at 0, half at 1 / k (Box and Lucas 1959)."""
    k, t = 2.0, np.arange(41) / 40
    J = np.stack([np.exp(-k * t), -t * np.exp(-k * t)], axis=1)
    for count in (2, 6):
        found = choose_measurements(J, count, repeats=True)
        assert found.chosen == (0,) * (count // 2) + (20,) * (count // 2)
        assert found.cost == count
    # each but once: no pair is better than the two
    pairs = [np.linalg.det(J[[i, j]]) ** 2 for i in range(41) for j in range(i)]
    np.testing.assert_allclose(np.linalg.det(J[[0, 20]]) ** 2, max(pairs), rtol=1e-12)


def test_a_line_is_measured_at_its_ends() -> None:
    assert choose_measurements(OF_LINE, 4, repeats=True).chosen == (0, 0, 20, 20)
    assert choose_measurements(OF_LINE, 4).chosen == (0, 1, 19, 20)
    found = choose_measurements(OF_LINE, 4, repeats=True, criterion=AOptimal())
    assert found.chosen == (0, 0, 20, 20)


def test_one_combination_is_measured_where_elfving_says() -> None:
    """The value at 3 from samples in [-1, 1]: at the ends as (3 - 1) to (3 + 1); that at 0.5 there.

    Elfving (1952): weights proportional to the coefficients of Lagrange.
    """
    found = choose_measurements(OF_LINE, 6, repeats=True, criterion=COptimal((1.0, 3.0)))
    assert found.chosen == (0, 0, 20, 20, 20, 20)
    np.testing.assert_allclose(np.exp(2 * found.loss), 3.0**2 / 6, rtol=1e-6)
    inside = choose_measurements(OF_LINE, 3, repeats=True, criterion=COptimal((1.0, 0.5)))
    np.testing.assert_allclose(np.exp(2 * inside.loss), 1 / 3, rtol=1e-6)


def test_what_a_fit_leaves_open_is_chosen() -> None:
    """A fit knows a / b only: a second measurement of it is worth nothing, one of b alone all."""
    ratio, alone, weak = [1.0, -0.1], [0.0, 0.05], [0.02, 0.0]
    H = np.outer(ratio, ratio)
    fit = replace(
        made_up(), names=("a", "b"), values=np.array([1.0, 10.0]),
        information=Information(H, H[None], np.zeros((2, 2)), np.zeros((1, 2))),
        noise=Noise(0.1, None, stated=True), point=None,
    )  # fmt: skip
    np.testing.assert_allclose(np.abs(COptimal.undetermined(fit).direction), [[0.5**0.5] * 2])
    criterion = COptimal.undetermined(fit, relative=False)
    J = [[10.0 * x for x in ratio], alone, weak]
    found = choose_measurements(J, 1, known=H, criterion=criterion)
    assert found.chosen == (1,)
    # relative changes: b by 1 / 0.5, a less b by 1, so half their sum squared is (4 x 4 + 1) / 2
    np.testing.assert_allclose(np.exp(2 * found.loss), 8.5, rtol=1e-3)
    with pytest.raises(ValueError, match=r"`direction` must hold 1 numbers, .* but has shape"):
        criterion.loss(jnp.eye(1))


def information(J: np.ndarray, chosen: list[int]) -> float:
    return float(np.linalg.det(J[chosen].T @ J[chosen]))


def test_no_other_choice_of_as_many_is_better() -> None:
    J = np.random.default_rng(3).normal(size=(9, 2))
    found = choose_measurements(J, 4)
    best = max(combinations(range(9), 4), key=lambda chosen: information(J, [*chosen]))
    assert found.chosen == best


@pytest.mark.parametrize("seed", range(12))
def test_no_exchange_within_the_budget_is_better(seed: int) -> None:
    draw = np.random.default_rng(seed)
    J, costs = draw.normal(size=(12, 3)), draw.uniform(1.0, 3.0, 12)
    found = choose_measurements(J, 9.0, costs=costs)
    assert found.cost == pytest.approx(costs[list(found.chosen)].sum())
    others = [k for k in range(12) if k not in found.chosen]
    assert found.cost <= 9.0 < found.cost + costs[others].min()
    exchanges = [[*(set(found.chosen) - {one}), k] for one in found.chosen for k in others]
    affordable = [chosen for chosen in exchanges if costs[chosen].sum() <= 9.0]
    assert affordable
    assert max(information(J, x) for x in affordable) < information(J, [*found.chosen])


def test_what_is_known_counts() -> None:
    # what is known of the offset leaves the slope, which one sample at an end has
    known = np.diag([1e6, 0.0])
    assert choose_measurements(OF_LINE, 1, known=known).chosen in ((0,), (20,))
    # two sensors of three samples each: the second is noisier
    two = np.stack([OF_LINE[[0, 10, 20]], OF_LINE[[0, 10, 20]] / 2])
    assert choose_measurements(two, 1, criterion=DOptimal()).chosen == (0,)


def test_wrong_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="`sensitivities` must have shape"):
        choose_measurements(np.ones(3), 1)
    with pytest.raises(ValueError, match="`costs` must be positive"):
        choose_measurements(OF_LINE, 1, costs=0.0)
    with pytest.raises(ValueError, match="`costs` must be a number or have shape"):
        choose_measurements(OF_LINE, 1, costs=[1.0, 2.0])
    with pytest.raises(ValueError, match="`budget` must allow the cheapest"):
        choose_measurements(OF_LINE, 0.5)
    with pytest.raises(ValueError, match="`direction` must hold 2 numbers"):
        choose_measurements(OF_LINE, 1, criterion=COptimal((1.0,)))
