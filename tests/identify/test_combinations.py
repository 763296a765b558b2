"""The formulas that are determined, of mechanisms whose formulas are known by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.linalg import null_space

from jaxmech.identify.inference.combinations import Combinations, combinations
from jaxmech.identify.inference.formulas import Formula, circuits

Map = Callable[[np.ndarray], np.ndarray]
G = 9.81


def gradients(fn: Map, x: np.ndarray) -> np.ndarray:
    """Derivatives by the logarithms of x, from complex steps: exact to round-off."""
    rows = [fn(x * (1 + 1e-30j * unit)).imag / 1e-30 for unit in np.eye(len(x))]
    return np.array(rows).T


def free_changes(fn: Map, x: np.ndarray) -> np.ndarray:
    return null_space(gradients(fn, x)) * x[:, None]


def single(x: np.ndarray) -> np.ndarray:
    """(m a^2 + I) phi'' = m g a sin phi - k phi', with known g: what the motion depends on."""
    m, a, inertia, k = x
    return np.log(np.array([m * a**2 + inertia, k]) / (m * a * G))


def balance(x: np.ndarray) -> np.ndarray:
    """A pendulum whose torque at the pivot is measured too."""
    m, a, inertia = x
    return np.log(np.array([m * a**2 + inertia, m * a]))


def double(x: np.ndarray) -> np.ndarray:
    """Only ratios of the numbers in the equations of motion matter."""
    m1, m2, a1, a2, L1, I1, I2, k1, k2 = x[:9]
    g = x[9] if len(x) > 9 else G
    inertia = [m1 * a1**2 + I1 + m2 * L1**2, m2 * L1 * a2, m2 * a2**2 + I2]
    rest = [(m1 * a1 + m2 * L1) * g, m2 * a2 * g, k1, k2]
    found = np.log(np.array(inertia + rest))
    return found[1:] - found[0]


DOUBLE = ("m1", "m2", "a1", "a2", "L1", "I1", "I2", "k1", "k2", "g")
CASES: dict[str, tuple[Map, tuple[str, ...]]] = {
    "balance": (balance, ("m", "a", "I")),
    "single": (single, ("m", "a", "I", "k")),
    "double": (double, DOUBLE[:9]),
    "double with g": (double, DOUBLE),
}


def search(case: str, x: np.ndarray, **more: Any) -> Combinations:
    fn, names = CASES[case]
    return combinations(names, x, free_changes(fn, x), **more)


def is_determined(formula: Formula, fn: Map, x: np.ndarray) -> bool:
    """Whether the gradient is a combination of those of what the motion depends on."""
    rows = gradients(fn, x)
    own = formula.gradient(x) * x
    rest = own - rows.T @ np.linalg.lstsq(rows.T, own, rcond=None)[0]
    return bool(np.linalg.norm(rest) < 1e-9 * np.linalg.norm(own))


def test_a_pendulum_on_a_balance() -> None:
    found = search("balance", np.array([0.1476, 0.1691, 1.1e-4]))
    assert [str(f) for f in found.formulas] == ["m a", "m a^2 + I"]
    assert str(found) == "of m, a, I only m a and m a^2 + I are determined"


def test_a_swinging_pendulum() -> None:
    found = search("single", np.array([0.1476, 0.1691, 1.1e-4, 2.2e-4]))
    assert [str(f) for f in found.formulas] == ["m a/k", "(m a^2 + I)/k"]
    assert found.affected == ("m", "a", "I", "k")


def test_the_double_pendulum_by_name() -> None:
    """At an estimate of the measured one: the mass scale and how each arm's mass is spread."""
    x = np.array([0.0938, 0.1376, 0.1086, 0.1168, 0.1727, 4.4e-4, 1.27e-3, 2.37e-4, 1e-5, 9.81])
    found = search("double", x[:9])
    assert [str(f) for f in found.formulas] == [
        "k2/k1",
        "m2 a2/k1",
        "(m2 a2^2 + I2)/k1",
        "(m1 a1 + m2 L1)/k1",
        "(m1 a1^2 + m2 L1^2 + I1)/k1",
    ]
    assert "L1" not in found.affected
    with_g = search("double with g", x)
    assert with_g.missing == 0
    assert "g/L1" in [str(f) for f in with_g.formulas]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "count"), [("balance", 2), ("single", 2), ("double", 5)])
def test_formulas_found_at_random_values_are_true(case: str, count: int) -> None:
    """They also hold at values not used in the search, and none is missing."""
    fn, names = CASES[case]
    draw = np.random.default_rng(0)
    for _ in range(40 if count < 5 else 10):
        x, elsewhere = np.exp(draw.normal(-1.5, 1.5, (2, len(names))))
        found = search(case, x)
        assert len(found.formulas) == count, (x, found)
        assert all(is_determined(f, fn, elsewhere) for f in found.formulas), (x, found)


@pytest.mark.slow
def test_a_random_null_space_has_no_formulas() -> None:
    """A random null space has no formulas; one direction is the most error-prone case."""
    draw = np.random.default_rng(1)
    for p, r in [(4, 1), (6, 1), (8, 1), (6, 2), (8, 3)]:
        for _ in range(6):
            names = [f"p{k}" for k in range(p)]
            x = np.exp(draw.normal(size=p))
            found = combinations(names, x, draw.normal(size=(p, r)) * x[:, None])
            assert found.formulas == ()
            assert found.missing == p - r
            assert "without a short formula" in str(found)


def test_round_values_need_a_second_point() -> None:
    """With m = 2 the gradient of a^2 + I is as orthogonal as that of m a^2 + I."""
    x, other = np.array([2.0, 0.3, 0.05]), np.array([1.9, 0.4, 0.07])
    assert str(search("balance", x).formulas[1]) == "a^2 + I"
    second = [(other, free_changes(balance, other))]
    found = search("balance", x, also=second)
    assert [str(f) for f in found.formulas] == ["m a", "m a^2 + I"]


def test_offsets_may_be_zero() -> None:
    """Offset and rest angle are determined only as a sum, a rate and a delay not at all."""
    names = ["offset", "rest", "m"]
    found = combinations(names, [0.0, 0.3, 2.0], [[1.0], [-1.0], [0.0]])
    assert [str(f) for f in found.formulas] == ["offset + rest"]
    difference = combinations(names, [0.2, 0.3, 2.0], [[1.0], [1.0], [0.0]])
    assert str(difference) == "of offset, rest only offset - rest is determined"


def test_sums_and_words() -> None:
    nothing = combinations(["m", "a"], [1.0, 2.0], np.eye(2))
    assert str(nothing) == "nothing is determined in m, a"
    everything = combinations(["m", "a"], [1.0, 2.0], np.zeros((2, 0)))
    assert str(everything) == "all parameters are determined"
    names = ("friction.c1", "J[0]", "m")
    text = Formula(names, ((1, 0, 0), (0, 2, 1)), (1, -1), (0, 1, 0))
    assert str(text) == "(friction.c1 - m J[0]^2)/J[0]"
    x = np.array([0.3, 0.7, 1.9])
    assert text(x) == pytest.approx((0.3 - 1.9 * 0.49) / 0.7)
    np.testing.assert_allclose(text.gradient(x), [1 / 0.7, -0.3 / 0.49 - 1.9, -0.7], rtol=1e-12)


def test_the_plainest_basis_of_a_null_space() -> None:
    plain = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, -0.5, 0.2], [0, 0, 1], [0, 0, 0]])
    mixed = plain @ np.random.default_rng(2).normal(size=(3, 3))
    np.testing.assert_allclose(np.abs(circuits(mixed)), np.abs(plain)[:, [0, 1, 2]], atol=1e-12)
    assert circuits(np.zeros((3, 0))).shape == (3, 0)
    many = np.linalg.qr(np.random.default_rng(3).normal(size=(24, 10)))[0]
    found = circuits(many)
    assert found.shape == (24, 10)
    np.testing.assert_allclose(many @ (many.T @ found), found, atol=1e-10)


@pytest.mark.parametrize(
    ("values", "null", "message"),
    [
        ([1.0], np.ones((2, 1)), r"`values` must have shape \(2,\)"),
        ([1.0, np.nan], np.ones((2, 1)), r"`values` must be finite, but \[1\] is nan"),
        ([1.0, 2.0], np.ones((3, 1)), r"`null_space` must have shape \(2, r\), .* \(3, 1\)"),
        ([1.0, 2.0], [[np.inf], [1.0]], r"`null_space` must be finite, but \[0, 0\] is inf"),
    ],
)
def test_wrong_input_is_reported(values: Any, null: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combinations(["m", "a"], values, null)
