"""M, Q, A, b of every model against symbolic differentiation of an independent second writing."""

from typing import Any

import jax
import numpy as np
import pytest
import sympy as sp

from jaxmech.models import CATALOGUE, Model, make
from tests.models.written import WRITTEN
from tests.symbolic import Numeric, symbolic_equations, symbols_like

OPTIONS: dict[str, dict[str, Any]] = {"chain": {"links": 4}}


def derived(model: Model) -> Numeric:
    q = sp.symbols(" ".join(f"q_{name}" for name in model.system.coordinates), seq=True)
    v = sp.symbols(" ".join(f"v_{name}" for name in model.system.coordinates), seq=True)
    t, params = sp.Symbol("t"), symbols_like(model.params)
    L, phi, psi, force = WRITTEN[model.name](q, v, t, params)
    return symbolic_equations(L, phi, psi, q, v, t, params, force)


def random_arguments(model: Model, seed: int) -> tuple[Any, Any, float, dict[str, Any]]:
    """A state that need not satisfy the constraints, a time, and parameters around the defaults."""
    draw = np.random.default_rng(seed)
    params = {
        name: np.asarray(value) * draw.uniform(0.7, 1.3, np.shape(value))
        for name, value in model.params.items()
    }
    n = model.system.n
    return draw.normal(size=n), draw.normal(size=n), draw.uniform(0.0, 5.0), params


def assert_equations(model: Model, numeric: Numeric, seeds: range) -> None:
    equations = jax.jit(model.system.equations)
    for seed in seeds:
        q, v, t, params = random_arguments(model, seed)
        eom = equations(q, v, t, params)
        for block, wanted in zip("MQAb", numeric(q, v, t, params), strict=True):
            scale = np.max(np.abs(wanted), initial=0.0)
            np.testing.assert_allclose(
                eom.__dict__[block], wanted, rtol=0, atol=1e-12 * scale, err_msg=block
            )


@pytest.mark.parametrize("name", CATALOGUE)
def test_equations_are_those_of_symbolic_differentiation(name: str) -> None:
    model = make(name, OPTIONS.get(name, {}))
    assert_equations(model, derived(model), range(5))


def test_a_wrong_model_fails_the_same_check() -> None:
    numeric = derived(make("double_pendulum"))

    def swapped(q: Any, v: Any, t: float, p: dict[str, Any]) -> Any:
        return numeric(q, v, t, p | {"m1": p["m2"], "m2": p["m1"]})

    with pytest.raises(AssertionError):
        assert_equations(make("double_pendulum"), swapped, range(1))
