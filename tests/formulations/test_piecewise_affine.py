"""Functions that are affine between corners are recognized, and taken apart exactly."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.formulations.piecewise_affine import pieces

C = np.array([[1.0, -2.0, 0.5], [0.3, 0.0, 1.0]])
AFFINE = {
    "no corner": (lambda x, c: c @ x + jnp.sin(c[:, 0]), 0),
    "absolute value": (lambda x, c: c @ jnp.abs(x), 3),
    "of a sum": (lambda x, c: c[:, 0] * jnp.abs(x[0] + x[1] - 0.3), 1),
    "maximum": (lambda x, c: jnp.maximum(c @ x, 0.2) - jnp.minimum(x[0], x[1:]), 4),
    "choice": (lambda x, c: jnp.where(x[0] > c[0, 0], 3 * x[:2], -x[:2]), 1),
    "choice the other way": (lambda x, c: jnp.where(x[:2] <= 0.1, 3 * x[:2], c[:, 0]), 2),
    "sign": (lambda x, c: jnp.sign(x[:2]) * x[1:], 2),
    "inside a function": (lambda x, c: jax.jit(lambda y: jax.nn.relu(y)[:2] / c[:, 2])(x), 3),
    "gathered": (lambda x, c: jnp.abs(x)[jnp.array([2, 0])], 3),
    "one in another": (lambda x, c: jnp.abs(c @ jnp.abs(x) - 0.5), 5),
}
OTHERS = {
    "square": lambda x: x**2,
    "length": lambda x: jnp.sqrt(x @ x)[None],
    "smooth": jnp.tanh,
    "product": lambda x: jnp.abs(x[0]) * x,
    "corner of a curve": lambda x: jnp.abs(x[0] * x[1])[None],
    "index": lambda x: jnp.arange(3.0)[jnp.argmax(x)][None],
    "loop": lambda x: jax.lax.scan(lambda y, _: (y + x, None), x, None, length=3)[0],
}


@pytest.mark.parametrize("name", AFFINE)
def test_the_selected_piece_equals_the_function(name: str) -> None:
    """The affine piece selected by the signs at the corners has the value of the function."""
    fn, count = AFFINE[name]
    found = pieces(fn, jnp.zeros(3), C)
    assert found is not None
    assert found.count == count
    draw = np.random.default_rng(0)
    all_sides = jnp.asarray([*itertools.product([-1.0, 1.0], repeat=count)])
    evaluated = jax.vmap(found.fn, (0, None, None))
    for x in jnp.asarray(draw.normal(size=(5, 3))):
        values, corners = evaluated(all_sides, x, C)
        own = (np.sign(corners) == all_sides).all(1)
        assert own.sum() == 1
        np.testing.assert_allclose(values[own][0], fn(x, C), rtol=1e-14, atol=1e-15)
        slopes = [jax.jacfwd(lambda x: found.fn(all_sides[0], x, C)[0])(y) for y in (x, -3 * x)]
        np.testing.assert_array_equal(*slopes)


@pytest.mark.parametrize("name", OTHERS)
def test_functions_that_are_not_piecewise_affine(name: str) -> None:
    assert pieces(OTHERS[name], jnp.zeros(3)) is None
