"""Laws of friction as candidates: recordings choose the one with which they were made."""

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import Identifiable, Settings, cross_validate, fit, friction_laws
from jaxmech.parts import Mechanism, gravity, ground, planar_body, revolute

STEPS, TS = jm.FixedSteps(8), np.arange(61) / 20
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
    assert fits["viscous"].correlated
    assert not fits["coulomb"].correlated
    assert jm.identify.compare(fits).best == "coulomb"
    np.testing.assert_allclose(fits["coulomb"].values, [0.06], rtol=0.02)


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
