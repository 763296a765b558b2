"""A `Solution` by name, and as a dataset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm

MODEL = jm.models.double_pendulum()
TS = jnp.linspace(0.0, 1.0, 11)


def swing(theta: jax.Array) -> jm.Solution:
    q, v = MODEL.initial({"theta1": theta})
    return jm.simulate(MODEL.system, q, v, TS, MODEL.params, steps=jm.FixedSteps(5))


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
    sol = jm.simulate(motor, [0.0, 0.0], [1.0, 2.0], TS, steps=jm.FixedSteps(20))
    assert sol.names == ("angle", "angle.rate", "current")
    np.testing.assert_allclose(sol["current"], 2.0 * np.exp(-np.asarray(TS)), rtol=1e-8)


def test_a_dataset(batch: jm.Solution) -> None:
    pytest.importorskip("xarray")
    one, many = member(batch, 0).to_xarray(), batch.to_xarray()
    assert dict(one.sizes) == {"t": 11}
    assert dict(many.sizes) == {"trajectory": 3, "t": 11}
    np.testing.assert_array_equal(many["y2.rate"].sel(trajectory=1), batch.v[1, :, 3])
    assert float(one["x1"].sel(t=0.5)) == float(batch.q[0, 5, 0])
    assert "0 OK" in many["status"].attrs["meanings"]
