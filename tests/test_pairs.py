"""Everything that acts on a motion goes with everything else, in every kind of run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import jaxmech as jm
from jaxmech.ensemble import (
    Failure,
    Fixed,
    Normal,
    RecordedInput,
    Study,
    StudyEvent,
    Times,
    failure_probability,
    run_study,
)
from tests.ensemble.studies import arrays
from tests.pairs import END, FEATURES, HOLD, RAMP, SAVES, Cart, exact

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "fixed": {"steps": jm.FixedSteps(8)},
    "adaptive": {"steps": jm.Adaptive(rtol=1e-9)},
    "Rodas5P": {"method": jm.Rodas5P(), "steps": jm.FixedSteps(8)},
}
ALL = Cart(FEATURES)
FIXED = WAYS["fixed"]


@pytest.mark.parametrize(
    "way", ["fixed", *(pytest.param(w, marks=pytest.mark.slow) for w in WAYS if w != "fixed")]
)
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


# Contacts and events, in all at once, are without each other here, and neither is there.
HIDDEN, EVENTS = ("gap", "friction"), ("event", "switch")
STATES, INPUTS = ("controller", "state"), ("quasi", "input")
FOURS = {"default": [(HIDDEN, STATES), (EVENTS, INPUTS), (STATES, INPUTS)],
         "adaptive": [(HIDDEN, INPUTS), (EVENTS, STATES), (STATES, INPUTS)]}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("way", "couples"), [(way, x) for way in FOURS for x in FOURS[way]])
def test_some_features_without_others_in_exact_pieces(way: str, couples: Any) -> None:
    four = sum(couples, ())
    cart = Cart(four)
    np.testing.assert_allclose(cart.motion(cart.run(**WAYS[way])), exact(four), atol=1e-9)


@pytest.mark.slow
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


@pytest.mark.slow
def test_observed_accelerations_are_those_of_the_motion() -> None:
    sol = ALL.run(**FIXED)
    seen = jm.observe(ALL.system, sol, ALL.params)
    after = exact(FEATURES, times=SAVES[:-1] + 1e-5)
    before = exact(FEATURES, times=SAVES[:-1])
    slopes = (after - before)[:, 1] / 1e-5 * ALL.per_rate  # of the velocities of the solution
    np.testing.assert_allclose(seen.qdd[:-1, 0], slopes, atol=1e-4)
    assert set(seen.multipliers) == {"lock", "stop", "rub"}
    assert jnp.isfinite(seen.multipliers["rub"]).all()


@pytest.mark.slow
def test_a_view_shows_the_saved_motion() -> None:
    sol = ALL.run(**FIXED)
    shapes = lambda q, t, p: {"cart": jnp.stack([q[0], 0.0])}  # noqa: E731
    view = jm.view(shapes, sol, ALL.params, show=False, fps=5.0)
    (cart,) = (item for item in view.items if item.group == "cart")
    np.testing.assert_allclose(cart.points[:, -1, 0], exact(FEATURES)[:, 0], atol=1e-9)


def study_of(cart: Cart, folder: Path, **settings: Any) -> Study:
    """Runs of the cart with loads that are drawn."""
    inputs: dict[str, RecordedInput] = {}
    for name, (t, values) in {"hold": HOLD, "ramp": RAMP}.items():
        rows = "".join(f"{a},{b}\n" for a, b in zip(t, values, strict=True))
        (folder / f"{name}.csv").write_text(f"t,value\n{rows}")
        way = "hold" if name == "hold" else "linear"
        inputs[name] = RecordedInput(file=f"{name}.csv", column="value", interpolation=way)
    names = cart.system.coordinates, cart.system.velocity_names
    starts = [
        {name: Fixed(float(x)) for name, x in zip(*pair, strict=True)}
        for pair in zip(names, (cart.q0, cart.v0), strict=True)
    ]
    own = {
        e.name: StudyEvent(
            function=e.fn, direction=e.direction, jump=e.transition.fn, on=e.transition.on,
            off=e.transition.off,
        )
        for e in cart.ways.get("events", ())
    }  # fmt: skip
    return Study(
        model=cart.system, size=8, block=8, times=Times(end=END, saves=len(SAVES)),
        coordinates=starts[0], velocities=starts[1], parameters={"F": Normal(mean=-1.0, sd=0.1)},
        inputs=inputs if "input" in cart.has else {}, events=own,
        inactive=("lock",) if "switch" in cart.has else (), **settings,
    )  # fmt: skip


@pytest.mark.slow
def test_a_study(tmp_path: Path) -> None:
    study = study_of(ALL, tmp_path, steps=jm.FixedSteps())
    run_study(study, tmp_path / "run", folder=tmp_path)
    stored = arrays(tmp_path / "run")
    assert not stored["status"].any()
    motions = [exact(FEATURES, F) for F in stored["parameter_F"]]
    np.testing.assert_allclose(stored["q"][..., 0], np.array(motions)[..., 0], atol=1e-9)
    assert (stored["hit_count"] == 1).all()


@pytest.mark.slow
def test_the_probability_of_a_failure(tmp_path: Path) -> None:
    failure, study = Failure(of="x", below=0.0, when="end", method="form"), study_of(ALL, tmp_path)
    ends = lambda F: exact(FEATURES, F)[-1, 0]  # noqa: E731
    low, high = ends(-1.3), ends(-0.7)
    level = low + 0.2 * (high - low)
    load = brentq(lambda F: ends(F) - level, -1.3, -0.7)
    result = failure_probability(study, failure=replace(failure, below=level), folder=tmp_path)
    chance = norm.cdf((load + 1.0) / 0.1)
    assert result.probability == pytest.approx(chance, rel=1e-3)


FITTED = tuple(x for x in FEATURES if x not in ("event", "switch"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:XLA compiles about")  # the start, the same in all directions
def test_a_fit() -> None:
    cart = Cart(FITTED)
    recording = jm.Recording(SAVES, exact(FITTED)[:, :1], cart.q0, cart.v0)
    arguments = cart.system, recording, cart.params | {"F": -0.9}
    with pytest.raises(TypeError, match="`events` is not an argument"):
        jm.fit(*arguments, events=())
    found = jm.fit(
        *arguments, observe=lambda q, v, t, p: q[:1], free=["F"], initial_states="fixed",
        steps=jm.FixedSteps(8),
    )  # fmt: skip
    np.testing.assert_allclose(found.params["F"], -1.0, rtol=1e-6)
