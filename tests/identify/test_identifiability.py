"""What is determined, of matrices whose null spaces are known by hand."""

import numpy as np
import pytest

from jaxmech.identify.uncertainty import Identifiability, directions, identifiability

M, A, INERTIA, K = 1.7, 0.3, 0.05, 0.02


def pendulum(*, gravity_known: bool = True) -> Identifiability:
    """m a and m a^2 + I (a balance), or these and k up to a factor (a free swing)."""
    mass, whole = np.array([A, M, 0.0, 0.0]), np.array([A**2, 2 * M * A, 1.0, 0.0])
    friction = np.array([0.0, 0.0, 0.0, 1.0])
    if gravity_known:
        J = np.stack([mass, whole])[:, :3]
        return identifiability(["m", "a", "I"], [M, A, INERTIA], J.T @ J)
    weight, inertia = M * A, M * A**2 + INERTIA
    J = np.stack([whole / inertia - mass / weight, friction / K - mass / weight])
    return identifiability(["m", "a", "I", "k"], [M, A, INERTIA, K], J.T @ J)


def test_a_null_direction_is_named() -> None:
    found = pendulum()
    part = 100 * M * A**2 / INERTIA  # what 1 % of m and -1 % of a do to I, in %
    assert found.rank == 2
    assert found.undetermined == ("m", "a", "I")
    np.testing.assert_allclose(found.exact[0].changes * part, [100, -100, part], rtol=1e-9)
    assert str(found.exact[0]) == ("m +0.327 %, a -0.327 %, I +1 % leaves every residual unchanged")


def test_the_mass_scale_is_named() -> None:
    found = pendulum(gravity_known=False)
    assert str(found.exact[0]) == "m +1 %, I +1 %, k +1 % leaves every residual unchanged"


def test_the_report() -> None:
    text = repr(pendulum(gravity_known=False))
    for line in (
        "Identifiability: 4 parameters, rank 2",
        "not determined  m, a, I, k",
        "2 numbers must come from elsewhere: fix for instance",
    ):
        assert line in text, text
    assert "fix one of m, a, I, or give it a prior: prior={" in repr(pendulum())
    good = identifiability(["m", "a"], [1.0, 2.0], np.eye(2))
    assert repr(good).splitlines()[1:] == ["  not determined  none"]


@pytest.mark.parametrize("several", [2, 9])
def test_null_directions_are_of_few_parameters(several: int) -> None:
    """Of sums of pairs a_k + b_k, each null direction is a pair, in whatever basis it was found."""
    J = np.kron(np.eye(several), [[1.0, 1.0]])
    names = [f"{letter}{k}" for k in range(several) for letter in "ab"]
    found = identifiability(names, np.ones(2 * several), J.T @ J)
    pairs = {tuple(np.flatnonzero(one.changes)) for one in found.exact}
    assert pairs == {(2 * k, 2 * k + 1) for k in range(several)}


def test_nearly_equal_columns_are_determined() -> None:
    J = np.array([[1.0, 1.0], [1.0, 1.0001], [1.0, 1.0]])
    found = identifiability(["a", "b"], np.ones(2), J.T @ J)
    assert found.exact == ()
    assert found.rank == 2


def test_a_parameter_without_effect_is_reported_separately() -> None:
    H = np.diag([4.0, 0.0, 1.0])
    found = identifiability(["a", "b", "c"], [1.0, 2.0, 3.0], H)
    assert found.undetermined == ("b",)
    assert found.to_fix == ("b",)
    assert str(found.exact[0]) == "b +1 % leaves every residual unchanged"
    assert "fix b, or give it a prior: prior={'b': (mean, sd)}" in repr(found)
    round_off = np.diag([4.0, 1e-17, 1.0])
    assert identifiability(["a", "b", "c"], [1.0, 2.0, 3.0], round_off).rank == 2


def test_of_a_value_of_zero_any_effect_counts() -> None:
    """One near zero has a size, and its change by 100 % hardly any effect."""
    H = np.diag([1.0, 1.0])
    assert identifiability(["a", "c"], np.array([1.0, 1e-12]), H).undetermined == ("c",)
    assert identifiability(["a", "c"], np.array([1.0, 0.0]), H).undetermined == ()


@pytest.mark.parametrize("p", [2, 5, 12])
def test_units_do_not_move_the_rank(p: int) -> None:
    """A null space of two dimensions at random, in units from 1e-12 to 1e12, through round-off."""
    draw = np.random.default_rng(p)
    for _ in range(20):
        J = draw.normal(size=(40, max(p - 2, 1))) @ draw.normal(size=(max(p - 2, 1), p))
        units = 10.0 ** draw.uniform(-12, 12, p)
        H = (J * units).T @ (J * units)
        found = directions(1 / units, H)
        assert found.root.shape[1] == max(p - 2, 1)
        assert not found.determined.any()
