"""The table of all laws at one state, and the count of operations in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.laws import (
    Contravariant,
    LagrangeFirstKind,
    Maggi,
    compare_formulations,
)
from jaxmech.laws.compare import FORMULATIONS, operations
from jaxmech.models import make
from tests.small import QUATERNION, REDUNDANT


@pytest.mark.slow
def test_redundant_rows() -> None:
    case = REDUNDANT
    table = compare_formulations(case.system, case.q, case.v, 0.0, case.params)
    assert [row.formulation for row in table.rows] == list(FORMULATIONS)
    for row in table.rows:
        assert not row.reason
        assert max(row.qdd, row.constraint_force, row.multipliers) < 1e-12
        assert row.rank == 1
        assert row.residual < 1e-9
        assert row.operations > 50
    by_law = {repr(row.formulation): row for row in table.rows}
    # one independent row, and M = m I: nothing is badly conditioned about its pseudo-inverse
    assert by_law[repr(FORMULATIONS[0])].condition == pytest.approx(1.0, abs=1e-12)
    text = repr(table).splitlines()
    assert len(text) == 1 + len(FORMULATIONS)
    assert text[4].startswith("LagrangeFirstKind()")


def test_a_law_that_is_not_defined_is_listed_with_its_reason() -> None:
    case = QUATERNION
    laws = (LagrangeFirstKind(), Maggi(), Contravariant())
    table = compare_formulations(case.system, case.q, case.v, 0.0, case.params, formulations=laws)
    first, maggi, contravariant = table.rows
    assert max(first.qdd, maggi.qdd) < 1e-13
    assert "singular" in contravariant.reason
    assert np.isnan(contravariant.qdd)
    assert "not defined: Argument `formulation`" in repr(table).splitlines()[-1]


@pytest.mark.slow
def test_the_condition_is_that_of_what_is_solved() -> None:
    """Near a pose where the rank falls, all of them show it, and the normal equations squared."""
    model = make("four_bars", {"bars": 1})
    q, v = model.initial({"angle": 1e-3})
    table = compare_formulations(
        model.system, q, v, 0.0, dict(model.params), formulations=FORMULATIONS[:2]
    )
    svd, ldl = (row.condition for row in table.rows)
    assert svd > 100
    assert ldl == pytest.approx(svd**2, rel=1e-3)


def test_operations_are_counted_as_often_as_they_run() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.sin(c) + 1.0, None), x, length=10)[0]

    assert operations(loop, jnp.ones(3)) == 60
    assert operations(lambda x: jax.jit(loop)(x.reshape(3, 1)[:, 0]).sum(), jnp.ones(3)) == 63
    for total in (jnp.sum, jnp.prod, jnp.min, jnp.max):
        assert operations(total, jnp.ones(9)) == 9
    assert operations(lambda x: jax.lax.cond(True, lambda: x, lambda: loop(x)), jnp.ones(3)) == 60
    assert operations(lambda A, B: A @ B, jnp.ones((2, 3)), jnp.ones((3, 4))) == 48
