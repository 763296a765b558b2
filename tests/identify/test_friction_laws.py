"""Laws of friction as candidates: recordings choose the one with which they were made."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmech as jm
from jaxmech.identify import Identifiable, Settings, cross_validate, fit, friction_laws
from jaxmech.parts import Mechanism, gravity, ground, planar_body, revolute

STEPS, TS = jm.FixedSteps(8), np.arange(61) / 20
STRIBECK = {"coulomb": 0.08, "viscous": 0.03, "static": 0.16, "stribeck": 0.5}
TRUTH = {"viscous": {"hinge.viscous": 0.04}, "coulomb": {"hinge.coulomb": 0.06}}


def laws() -> dict[str, Identifiable]:
    rod = planar_body("rod", mass=1.0, inertia=0.1)
    hinge = revolute("hinge", ground, (0, 0), rod, (0, 0.5))
    pendulum = Mechanism([rod], [hinge], [gravity(9.81)])
    return friction_laws(pendulum, ["hinge"], torque=0.1, speed=2.0)


def recordings(law: str) -> list[jm.Recording]:
    system, rng = laws()[law].system, np.random.default_rng(0)
    made = []
    for angle in (0.5, -0.7, 0.9, -1.1):
        sol = jm.simulate(system, [angle], [0.0], TS, TRUTH[law], steps=STEPS)
        noise = 1e-3 * rng.normal(size=sol.q.shape)
        made.append(jm.Recording(TS, sol.q + noise, [angle], [0.0]))
    return made


@pytest.mark.parametrize("law", ["coulomb", "viscous"])
def test_recordings_choose_their_law(law: str) -> None:
    candidates = {name: laws()[name] for name in ("viscous", "coulomb")}
    settings = Settings(steps=STEPS, initial_states="fixed")
    found = cross_validate(candidates, recordings(law), folds=2, settings=settings)
    assert found.chosen == law
    wrong = found.scores.max()
    assert wrong > 5 * found.scores.min()
    np.testing.assert_allclose(found.scores.min(), 1e-3, rtol=0.2)  # the noise


def test_a_viscous_model_of_dry_friction_is_rejected() -> None:
    one, candidates = recordings("coulomb")[0], laws()
    fits = {}
    for name in ("viscous", "coulomb"):
        subject = candidates[name]
        fits[name] = fit(
            subject.system, one, subject.params, free=subject.free, bounds=subject.bounds,
            steps=STEPS,
        )  # fmt: skip
    assert fits["viscous"].noise.correlated
    assert not fits["coulomb"].noise.correlated
    assert jm.identify.compare(fits).best == "coulomb"
    np.testing.assert_allclose(fits["coulomb"].values, [0.06], rtol=0.02)


def _with_static_friction(angle: float, noise: np.ndarray) -> jm.Recording:
    """A swing under Stribeck friction, its equation by hand, solved by LSODA of scipy."""
    hinge, smooth = STRIBECK, 0.02 * 2.0  # of the usual speed
    coulomb, excess = hinge["coulomb"], hinge["static"] - hinge["coulomb"]

    def rates(_: float, state: np.ndarray) -> list[float]:
        a, w = state
        dry = coulomb + excess * np.exp(-((w / hinge["stribeck"]) ** 2))
        torque = -9.81 * 0.5 * np.sin(a) - dry * np.tanh(w / smooth) - hinge["viscous"] * w
        return [w, torque / (0.1 + 0.5**2)]

    ts = np.arange(151) / 50
    end = ts[-1]
    sol = solve_ivp(rates, (0, end), (angle, 0), "LSODA", ts, rtol=1e-10, atol=1e-12)
    return jm.Recording(ts, sol.y[:1].T + 1e-3 * noise, [angle], [0.0])


@pytest.mark.slow
def test_static_friction_is_found() -> None:
    """The law is chosen, and its four numbers are those of swings that were made elsewhere."""
    noise = np.random.default_rng(0).normal(size=(4, 151, 1))
    made = [_with_static_friction(*one) for one in zip((0.5, -0.7, 0.9, -1.1), noise, strict=True)]
    fits = {
        name: fit(
            one.system, made, one.params, free=one.free, bounds=one.bounds, steps=STEPS,
            initial_states="fixed",
        )
        for name, one in laws().items()
    }  # fmt: skip
    assert jm.identify.compare(fits).best == "stribeck"
    assert [name for name, one in fits.items() if not one.noise.correlated] == ["stribeck"]
    best = fits["stribeck"]
    truth = [STRIBECK[name.removeprefix("hinge.")] for name in best.names]
    errors = best.uncertainty.standard_errors
    assert (np.abs(best.values - truth) < 3 * errors).all()
    assert (errors < 0.1 * np.array(truth)).all()
    np.testing.assert_allclose(best.noise.size, 1e-3, rtol=0.1)


def test_the_laws_have_their_numbers() -> None:
    found = {name: subject.free for name, subject in laws().items()}
    numbers = ("hinge.coulomb", "hinge.viscous", "hinge.static", "hinge.stribeck")
    assert found["stribeck"] == numbers
    assert found["coulomb + viscous"] == numbers[:2]
    both = laws()["stribeck"]
    assert both.bounds == dict.fromkeys(numbers, (0, None))
    rod = planar_body("rod", mass=1.0, inertia=0.1)
    hinge = revolute("hinge", ground, (0, 0), rod, (0, 0.5))
    with pytest.raises(ValueError, match="names of joints out of hinge, but has 'knee'"):
        friction_laws(Mechanism([rod], [hinge]), ["knee"], torque=1.0, speed=1.0)
    with pytest.raises(ValueError, match="`torque` must be positive"):
        friction_laws(Mechanism([rod], [hinge]), ["hinge"], torque=0.0, speed=1.0)
