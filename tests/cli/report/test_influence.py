"""What a quantity depends on, from its members: shares of the variance with known values."""

import numpy as np

from jaxmech.cli.report.quantities import first_order, influence_from_statistics

RNG = np.random.default_rng(5)
A, B, C = RNG.uniform(-1, 1, (3, 4000))


def test_shares_of_a_sum_are_those_of_its_variances() -> None:
    found = first_order({"a": A, "b": B, "c": C}, 2 * A + B)
    assert found is not None
    np.testing.assert_allclose(found.values, (0.8, 0.2, 0.0), atol=0.03)
    assert (found.low <= found.values).all()
    assert (found.values <= found.high).all()
    assert (found.low[:2] < (0.8, 0.2)).all()
    assert (found.high[:2] > (0.8, 0.2)).all()


def test_a_dependence_without_correlation_is_seen() -> None:
    found = first_order({"a": A, "b": B}, A**2)
    assert found is not None
    assert found.values[0] > 0.95
    assert found.values[1] < 0.03
    assert found.strongest(1).names == ("a",)


def test_few_members_show_nothing() -> None:
    assert first_order({"a": A[:50]}, A[:50]) is None
    assert first_order({}, A) is None
    assert first_order({"a": A}, np.zeros_like(A)) is None


def test_sobol_indices_come_before_correlations() -> None:
    ends = {f"{key}{end}": np.array([0.7]) for key in ("total",) for end in ("", "_low", "_high")}
    sobol = ({"statistic": "sobol-indices"}, {"names": np.array(["parameters.m"]), **ends})
    names = np.array(["x", "coordinates.y"])
    square = {f"correlation{end}": np.full((2, 2), 0.3) for end in ("", "_low", "_high")}
    pairs = ({"statistic": "covariance"}, {"names": names, **square})
    found = influence_from_statistics("x", [pairs, sobol])
    assert found is not None
    assert found.names == ("m",)
    found = influence_from_statistics("x", [pairs])
    assert found is not None
    assert (found.names, found.measure) == (("y at the start",), "correlation")
