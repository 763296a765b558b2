"""The place where a function is lowest, and its derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.parts.contacts.profiles import lowest


@pytest.mark.slow
def test_derivatives_are_exact_up_to_the_third() -> None:
    """The place is s where s - 0.4 sin(s) = context, so that going there and back is nothing."""

    def there_and_back(s: Any) -> Any:
        return lowest(lambda s, c: -jnp.cos(s - 0.4 * jnp.sin(s) - c), s - 0.4 * jnp.sin(s))

    fn, values = there_and_back, []
    for _ in range(4):
        values.append(fn(1.1))
        fn = jax.jacfwd(fn)
    np.testing.assert_allclose(values, [1.1, 1.0, 0.0, 0.0], atol=1e-12)
