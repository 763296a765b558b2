"""Values behind tracers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxmech.utils.probing import actual


def test_of_a_batch_along_an_explicit_axis_of_a_mesh() -> None:
    mesh = jax.make_mesh((1,), ("members",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("members")))
    looked_at = []

    def square(x: Any) -> Any:
        looked_at.append(actual(x, 3))
        return x**2

    assert jax.vmap(jax.grad(square))(x).sharding.spec == PartitionSpec("members")
    np.testing.assert_array_equal(looked_at[0], [0.0, 4.0, 7.0])
