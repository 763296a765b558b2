"""A `Solution` by name, as a dataset, as a table, and as HTML."""

import pickle
import re

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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("t", "sol.ts"),  # as in scipy
        ("y", "sol.q"),
        ("statu", "sol.status"),
        ("x2", "sol['x2']"),
        ("y1_rate", "sol['y1.rate']"),
    ],
)
def test_wrong_attributes_are_answered_with_right_ones(batch, name: str, hint: str) -> None:
    with pytest.raises(
        AttributeError, match=re.escape(f"no attribute `{name}`; did you mean `{hint}`")
    ):
        getattr(batch, name)
    assert not hasattr(batch, "_no_such_name")
    assert pickle.loads(pickle.dumps(jax.device_get(batch))).names == batch.names


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


@pytest.mark.slow
def test_a_name_works_in_a_gradient() -> None:
    slope = jax.grad(lambda theta: swing(theta)["x2.rate"][-1])(0.4)
    both = [swing(0.4 + h)["x2.rate"][-1] for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(slope, (both[0] - both[1]) / 2e-5, rtol=1e-6)


def test_a_dataset(batch: jm.Solution) -> None:
    pytest.importorskip("xarray")
    one, many = member(batch, 0).to_xarray(), batch.to_xarray()
    assert dict(one.sizes) == {"t": 11}
    assert dict(many.sizes) == {"trajectory": 3, "t": 11}
    np.testing.assert_array_equal(many["y2.rate"].sel(trajectory=1), batch.v[1, :, 3])
    assert float(one["x1"].sel(t=0.5)) == float(batch.q[0, 5, 0])
    assert "0 OK" in many["status"].attrs["meanings"]


def test_a_table(batch: jm.Solution) -> None:
    pytest.importorskip("pandas")
    one, many = member(batch, 2).to_pandas(), batch.to_pandas()
    assert list(one.columns) == list(batch.names)
    assert one.index.name == "t"
    np.testing.assert_array_equal(one["y1"], batch.q[2, :, 1])
    np.testing.assert_array_equal(many.loc[2, "y1"], batch.q[2, :, 1])
    assert many.index.names == ["trajectory", "t"]


def test_the_card_of_a_notebook(batch: jm.Solution) -> None:
    shown = member(batch, 0)._repr_html_()
    assert shown.count("<polyline") == 4
    assert "status             OK" in shown
    assert batch._repr_html_().startswith("<div><pre>Solution: 3 trajectories")
    assert "without values" in jax.eval_shape(swing, 0.3)._repr_html_()


@pytest.mark.slow
def test_a_solution_of_many_coordinates_prints_some_of_their_names() -> None:
    model = jm.models.chain(6)
    sol = jm.simulate(model.system, *model.initial(), TS[:2], model.params, steps=jm.FixedSteps(50))
    assert repr(sol).splitlines()[0].endswith("y4 and 4 more")


@pytest.mark.slow
def test_of_many_events_those_that_occurred_are_printed_with_whole_names() -> None:
    slide = jm.System(lambda q, v, t, p: v @ v, coordinates=("position",))
    events = [
        jm.Event(lambda q, v, t, p, place=place: q[0] - place, name=f"the slide passes {place} m")
        for place in range(10)
    ]
    ts, steps = jnp.array([0.0, 2.0]), jm.FixedSteps(per_save=4)
    sol = jm.simulate(slide, [0.3], [0.6], ts, events=events, steps=steps)
    assert str(sol).splitlines()[-2:] == [
        "  the slide passes 1 m 1 time, first at t = 1.16667 s",
        "  other events         9, none of which occurred",
    ]
