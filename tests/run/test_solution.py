"""The summary that a solution prints, its columns by name, and its dataset."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import FixedSteps, Solution, models, simulate
from jaxmech.errors import StepWarning
from tests.small import PENDULUM

TS = np.linspace(0.0, 1.0, 6)


def run(q: Any, case: Any = PENDULUM, v: Any = None) -> Solution:
    v = case.v if v is None else v
    return simulate(case.system, q, v, TS, case.params, steps=FixedSteps(10), throw=False)


def test_card_without_values() -> None:
    """A traced, abstract or empty solution can be printed too, since error messages may show it."""
    seen = []

    def traced(q: Any) -> Any:
        seen.append(repr(run(q)))
        return q

    jax.jit(traced)(PENDULUM.q)
    seen.append(repr(jax.eval_shape(run, PENDULUM.q)))
    seen.append(repr(jax.tree.map(lambda leaf: 0, jax.eval_shape(run, PENDULUM.q))))
    seen.append(repr(jax.tree.map(lambda leaf: leaf[None][:0], run(PENDULUM.q))))
    assert seen == ["Solution(coordinates=('x', 'y'), without values)"] * 4


def test_it_is_a_pytree() -> None:
    sol = run(PENDULUM.q)
    assert len(jax.tree.leaves(sol)) == 18 + len(sol.digests) + len(jax.tree.leaves(sol.run))
    halved = jax.tree.map(lambda leaf: leaf / 2, sol)
    np.testing.assert_array_equal(halved.q, sol.q / 2)
    assert halved.coordinates == sol.coordinates == ("x", "y")
    np.testing.assert_array_equal(copy.deepcopy(sol).v, sol.v)


def test_a_step_that_is_too_coarse_is_reported_with_the_remedy() -> None:
    model = models.pendulum()
    ts = np.linspace(0, 1, 11)
    with pytest.warns(StepWarning, match=r"too coarse; give a larger `FixedSteps\(per_save=...\)`"):
        sol = simulate(model.system, *model.initial(), ts, model.params, steps=FixedSteps(1))
    assert sol.ok
    assert sol.energy_drift > 1e-2
    assert sol.integration_error > 1e-3
    last = repr(sol).splitlines()[-1]
    assert "too coarse" in last
    assert "per_save" in last
    fine = run(PENDULUM.q)
    assert fine.integration_error < 1e-3
    assert "too coarse" not in repr(fine)


@pytest.mark.slow
def test_coarse_steps_are_reported_from_batches_and_derivatives_too() -> None:
    def end(g: Any) -> Any:
        params = PENDULUM.params | {"g": g}
        ts = jnp.linspace(0, 1, 11)
        sol = simulate(PENDULUM.system, PENDULUM.q, PENDULUM.v, ts, params, steps=FixedSteps(1))
        return sol.q[-1, 0]

    with pytest.warns(StepWarning, match="too coarse for 2 of 3 trajectories"):
        jax.vmap(end)(jnp.array([1e-3, 20.0, 30.0]))
    with pytest.warns(StepWarning, match="too coarse;"):
        jax.grad(end)(20.0)
    jax.jit(end)(20.0)  # where the error is unknown, and `integration_error` tells


def test_too_few_steps_to_estimate_the_error() -> None:
    ts = [0.0, 0.01]
    sol = simulate(
        PENDULUM.system, PENDULUM.q, PENDULUM.v, ts, PENDULUM.params, steps=FixedSteps(1)
    )
    assert sol.ok
    assert np.isnan(sol.integration_error)
    assert "FixedSteps(per_save=...)" in repr(sol).splitlines()[-1]


MODEL = jm.models.double_pendulum()
TIMES = jnp.linspace(0.0, 1.0, 11)


def swing(theta: jax.Array) -> jm.Solution:
    q, v = MODEL.initial({"theta1": theta})
    return jm.simulate(MODEL.system, q, v, TIMES, MODEL.params, steps=jm.FixedSteps(5))


@pytest.fixture(scope="module")
def batch() -> jm.Solution:
    return jax.jit(jax.vmap(swing))(jnp.array([0.3, 0.6, 0.9]))


def member(batch: jm.Solution, k: int) -> jm.Solution:
    return jax.tree.map(lambda x: x[k], batch)


def test_columns_by_name(batch: jm.Solution) -> None:
    names = ("x1", "y1", "x2", "y2")
    assert batch.names == (*names, *(f"{name}.rate" for name in names))
    for k, name in enumerate(names):
        np.testing.assert_array_equal(batch[name], batch.q[..., k])
        np.testing.assert_array_equal(batch[f"{name}.rate"], batch.v[..., k])
    with pytest.raises(KeyError, match="`x3` is not in the solution; did you mean `x"):
        batch["x3"]


def test_names_with_states_of_first_order() -> None:
    motor = jm.System(
        lambda q, v, t, p: (v @ v) / 2,
        coordinates=("angle",),
        states=("current",),
        rates=lambda q, v, t, p: -v[1:],
    )
    sol = jm.simulate(motor, [0.0, 0.0], [1.0, 2.0], TIMES, steps=jm.FixedSteps(20))
    assert sol.names == ("angle", "angle.rate", "current")
    np.testing.assert_allclose(sol["current"], 2.0 * np.exp(-np.asarray(TIMES)), rtol=1e-8)


def test_a_dataset(batch: jm.Solution) -> None:
    pytest.importorskip("xarray")
    one, many = member(batch, 0).to_xarray(), batch.to_xarray()
    assert dict(one.sizes) == {"t": 11}
    assert dict(many.sizes) == {"trajectory": 3, "t": 11}
    np.testing.assert_array_equal(many["y2.rate"].sel(trajectory=1), batch.v[1, :, 3])
    assert float(one["x1"].sel(t=0.5)) == float(batch.q[0, 5, 0])
    assert "0 OK" in many["status"].attrs["meanings"]
