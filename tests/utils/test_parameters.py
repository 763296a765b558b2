"""Which parameters are read, and which differ from those of a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.utils.trees import differing, digests_of, unread
from tests.small import PENDULUM

TS = np.linspace(0.0, 0.2, 3)


def run(params: Any, **options: Any) -> Any:
    return jm.simulate(
        PENDULUM.system, *PENDULUM[2:], TS, params, steps=jm.FixedSteps(10), **options
    )


def test_digests_are_the_same_traced_or_not() -> None:
    tree = {"l": 2.0, "k": np.array([[1.0, -0.0], [3.5, 1e300]]), "n": 3, "on": True}
    params = jax.tree.map(jnp.asarray, tree)
    known, traced = digests_of(params), jax.jit(digests_of)(params)
    assert known.keys() == {"l", "k", "n", "on"}
    for name, digest in known.items():
        assert digest == traced[name]
        assert digest.dtype == np.uint32
    assert differing(known, digests_of({**params, "k": jnp.abs(params["k"])})) == ()
    other = {**params, "k": params["k"].T, "n": jnp.asarray(4)}
    assert set(differing(known, digests_of(other))) == {"k", "n"}
    batch = jax.vmap(digests_of)({"l": jnp.array([2.0, 2.0 + 1e-15])})
    assert differing(batch, {"l": known["l"]}) == ("l",)


def test_what_a_function_does_not_read() -> None:
    params = {"torque": 1.0, "mass": np.ones(2), "colour": 1.0, "drag": {"torque": 1.0}}
    assert unread(lambda p: p["torque"] * p["mass"].sum(), params) == ("colour", "drag.torque")


@pytest.mark.slow
def test_a_mechanism_knows_its_parameters() -> None:
    def bar(params: Any) -> jp.Mechanism:
        body = jp.planar_body("bar", mass="mass", inertia=1.0)
        hinge = jp.revolute("hinge", jp.ground, (0, 0), body, (-1, 0))
        return jp.Mechanism([body], [hinge], [jp.gravity()], params)

    mechanism = bar({"mass": 1.0, "limit": 3.0})
    state = [0.1], [0.0]
    how = {"steps": jm.FixedSteps(1)}
    with pytest.warns(jm.errors.ParameterWarning, match="'masss', which nothing reads; if 'mass'"):
        jm.simulate(mechanism.system, *state, TS, {**mechanism.params, "masss": 3.0}, **how)
    level = jm.Event(lambda q, v, t, p: q[0] + p["depth"])
    read = {**mechanism.params, "depth": 3.0}
    assert jm.simulate(mechanism.system, *state, TS, read, events=level, **how).ok


@pytest.mark.slow
def test_observing_with_other_parameters_warns() -> None:
    sol = run(PENDULUM.params)
    wrong = {**PENDULUM.params, "l": 1.0}
    with pytest.warns(jm.errors.ParameterWarning, match="differ in l"):
        jm.observe(PENDULUM.system, sol, wrong)
    seen = jm.observe(PENDULUM.system, sol, wrong, other_params=True)
    assert seen.residuals["rod"].max() == pytest.approx(1.5)
    # What the system does not read may change; so may the form of a number.
    jm.observe(PENDULUM.system, sol, {**PENDULUM.params, "colour": 1.0, "l": np.float64(2)})


def test_a_batch_holds_the_digests_of_its_members() -> None:
    lengths = jnp.array([2.0, 2.0, 2.0 + 1e-9])

    def one(length: Any) -> Any:
        return run({**PENDULUM.params, "l": length}, throw=False)

    sols = jax.vmap(one)(lengths)
    assert sols.digests["l"].shape == (3,)
    first, last = (jax.tree.map(lambda x, k=k: x[k], sols) for k in (0, 2))
    jm.observe(PENDULUM.system, first, PENDULUM.params)
    with pytest.warns(jm.errors.ParameterWarning, match="differ in l"):
        jm.observe(PENDULUM.system, last, PENDULUM.params)
    slope = jax.grad(lambda length: one(length).q[-1, 0])(2.0)
    assert np.isfinite(slope)


@pytest.mark.slow
def test_a_picture_has_the_lengths_of_its_run() -> None:
    body = jp.planar_body("bar", mass="m", inertia=1.0)
    hinge = jp.revolute("hinge", jp.ground, (0, 0), body, (lambda t, p: -p["l"] / 2, 0))
    bar = jp.Mechanism([body], [hinge], [jp.gravity("g")], {"m": 1.0, "l": 1.0, "g": 9.81})
    params = {**bar.params, "l": 2.0}
    sol = jm.simulate(bar.system, [0.1], [0.0], TS, params, steps=jm.FixedSteps(1))
    for given, length in ((None, 2.0), ({**params, "l": 3.0}, 3.0)):
        points = jm.view(bar, sol, given, show=False).box.outermost
        assert np.ptp(points[:, :2], axis=0).max() == pytest.approx(length, rel=0.3)
