"""Unilateral constraints in checks of systems and in fits."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmech as jm
from jaxmech.analysis.findings import Severity

P = {"g": 9.81, "h": 0.1, "e": 0.5}


def falling(q, v, t, p):  # type: ignore[no-untyped-def]
    return 0.5 * v @ v - p["g"] * q[0]


def over_table(q: Array, t: Array, p: dict[str, float]) -> Array:
    return q[0] - p["h"]


def restitution(p: dict[str, float]) -> float:
    return p["e"]


BALL = jm.System(
    falling,
    [jm.Unilateral(over_table, restitution=restitution, name="table")],
    coordinates=("y",),
)


def test_structure_takes_closed_gaps_as_equations() -> None:
    def found(height: float) -> jm.analysis.Structure:
        return jm.analysis.structure(BALL, jnp.array([height]), jnp.zeros(1), 0.0, P)

    # Parameters of gaps and of restitutions are used.
    assert found(1.0).unused == ()
    assert found(1.0).ranks.position_freedom == 1
    lies, sinks = found(0.1), found(0.05)
    assert [c.name for c in lies.constraints] == ["table"]
    assert lies.ranks.position_freedom == 0
    (worst, *_) = sinks.findings
    assert worst.severity == Severity.SERIOUS
    assert "'table' is -0.05" in worst.what


@pytest.mark.slow
def test_a_fit_finds_the_position_of_a_stop_and_its_restitution() -> None:
    ts, steps = jnp.linspace(0.0, 1.0, 11), jm.FixedSteps(10)
    sol = jm.simulate(BALL, jnp.ones(1), jnp.zeros(1), ts, P, steps=steps)
    recording = jm.Recording(ts, sol.q, jnp.ones(1), jnp.zeros(1))
    guess = P | {"h": 0.095, "e": 0.52}
    fit = jm.fit(BALL, recording, guess, free=("e", "h"), steps=steps)
    np.testing.assert_allclose([fit.params["h"], fit.params["e"]], [0.1, 0.5], rtol=1e-9)


def test_dense_output_knows_which_gaps_are_closed() -> None:
    ts = jnp.linspace(0.0, 1.4, 8)
    sol = jm.simulate(BALL, jnp.ones(1), jnp.zeros(1), ts, P, steps=jm.FixedSteps(10))
    first = np.sqrt(2 * 0.9 / 9.81)
    t = np.array([0.3, first + 0.1, 1.35])
    expected = [1 - 9.81 * 0.3**2 / 2, 0.1 + 0.5 * 9.81 * first * 0.1 - 9.81 * 0.1**2 / 2, 0.1]
    np.testing.assert_allclose(sol.at(t).q[:, 0], expected, atol=1e-12)
