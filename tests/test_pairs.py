"""Everything that acts on a motion goes with everything else, in every kind of run."""

from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from tests.pairs import FEATURES, SAVES, Cart, exact

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "fixed": {"steps": jm.FixedSteps(8)},
    "adaptive": {"steps": jm.Adaptive(rtol=1e-9)},
    "Rodas5P": {"method": jm.Rodas5P(), "steps": jm.FixedSteps(8)},
}
ALL = Cart(FEATURES)
FIXED = WAYS["fixed"]


@pytest.mark.parametrize("way", WAYS)
def test_all_at_once_in_exact_pieces(way: str) -> None:
    cart, features = ALL, FEATURES
    if way == "Rodas5P":
        with pytest.raises(ValueError, match="without quasi-velocities"):
            ALL.run(**WAYS[way])
        features = tuple(x for x in FEATURES if x != "quasi")
        cart = Cart(features)
    sol = cart.run(**WAYS[way])
    np.testing.assert_allclose(cart.motion(sol), exact(features), atol=1e-9)
    found = {name: int(sol.events[name].count) for name in sol.events}
    assert found["hit"] == found["stop closes"] == found["at 0.52"] == found["at 0.71"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pair", [*combinations(FEATURES, 2)], ids="+".join)
def test_a_pair_in_exact_pieces(pair: tuple[str, str], way: str) -> None:
    if way == "Rodas5P" and "quasi" in pair:
        pytest.skip("refused, see above")
    cart = Cart(pair)
    np.testing.assert_allclose(cart.motion(cart.run(**WAYS[way])), exact(pair), atol=1e-9)


def test_a_batch_and_its_states_between_saves() -> None:
    loads = np.array([-1.3, -1.0, -0.7])
    sols = jax.vmap(lambda F: ALL.run(F, **FIXED))(loads)
    motions = [exact(FEATURES, F) for F in loads]
    np.testing.assert_allclose(ALL.motion(sols), motions, atol=1e-9)
    times = np.array([0.05, 0.45, 0.6, 0.93])
    between = ALL.run(**FIXED).at(times)
    np.testing.assert_allclose(ALL.motion(between), exact(FEATURES, times=times), atol=1e-9)


@pytest.mark.parametrize("way", ["fixed", pytest.param("adaptive", marks=pytest.mark.slow)])
def test_a_derivative(way: str) -> None:
    def end(F: Any) -> Any:
        return ALL.run(F, **WAYS[way]).q[-1, 0]

    e = 1e-6
    ends = [exact(FEATURES, -1.0 + x)[-1, 0] for x in (e, -e)]
    slope = (ends[0] - ends[1]) / (2 * e)
    assert abs(slope) > 1e-4
    np.testing.assert_allclose(jax.grad(end)(-1.0), slope, rtol=1e-5)


def test_observed_accelerations_are_those_of_the_motion() -> None:
    sol = ALL.run(**FIXED)
    seen = jm.observe(ALL.system, sol, ALL.params)
    after = exact(FEATURES, times=SAVES[:-1] + 1e-5)
    before = exact(FEATURES, times=SAVES[:-1])
    slopes = (after - before)[:, 1] / 1e-5 * ALL.per_rate  # of the velocities of the solution
    np.testing.assert_allclose(seen.qdd[:-1, 0], slopes, atol=1e-4)
    assert set(seen.multipliers) == {"lock", "stop", "rub"}
    assert jnp.isfinite(seen.multipliers["rub"]).all()
