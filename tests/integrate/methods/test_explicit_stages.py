"""Derivatives of the stages of large systems, which make each stage again."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import models
from jaxmech.integrate.methods import explicit_stages
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepState, step


def speed_gradient(model: Any) -> Any:
    """The gradient of the speed after one step by all parameters, as a function of the state."""
    scheme = Scheme.of(model.system)

    def speed(params: Any, q: Any, v: Any) -> Any:
        end, _ = step(scheme, StepState(q, v, jnp.zeros(())), jnp.asarray(0.01), params)
        return end.v @ end.v

    return lambda q, v: jax.grad(speed)(dict(model.params), q, v)


def kept_arrays(jaxpr: Any) -> Iterator[int]:
    """How many results each loop over stages has, with those that it keeps for all of them."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan" and equation.params["length"] == 4:
            yield len(equation.outvars)
        for parameter in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from kept_arrays(inner)


@pytest.mark.slow
def test_backward_pass_of_a_large_system_keeps_sums_of_stages_only() -> None:
    kept = {}
    for links in (2, 12):
        model = models.chain(links=links)
        jaxpr = jax.make_jaxpr(speed_gradient(model))(*model.initial())
        kept[links] = max(kept_arrays(jaxpr.jaxpr))
    # A small system keeps what its stages compute, because native code unrolls them.
    assert kept[12] < 16 < kept[2]


def test_gradient_is_the_same_whether_stages_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gradients = []
    for small in (100, 0):
        monkeypatch.setattr(explicit_stages, "_SMALL", small)
        model = models.double_pendulum()  # of its own, so that nothing is traced before
        gradients.append(speed_gradient(model)(*model.initial()))
    for name, derivative in gradients[0].items():
        np.testing.assert_allclose(gradients[1][name], derivative, rtol=1e-12, atol=1e-14)
