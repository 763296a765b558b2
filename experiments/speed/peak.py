"""The arithmetic peak of a device: independent chains of multiply-add in registers, measured."""

import jax
import jax.numpy as jnp
from jax import Array

from experiments.speed.routes import Prepared, compiled

CHAINS = 8  # side by side: each waits for its own previous result
LENGTH = 128
SIZE = 1 << 22  # numbers, which fill any device
OPERATIONS = 2 * CHAINS * LENGTH * SIZE  # per run; a multiply-add is two


def prepare() -> Prepared:
    """Compile the run in the default precision."""

    def run(x: Array, factor: Array, term: Array) -> Array:
        chains = [x + k for k in range(CHAINS)]
        for _ in range(LENGTH):
            chains = [factor * y + term for y in chains]
        return sum(chains[1:], chains[0])

    # XLA uses half of the vector width of some processors by default.
    options = {"xla_cpu_prefer_vector_width": 512} if jax.default_backend() == "cpu" else None
    numbers = jnp.linspace(0.0, 1.0, SIZE), jnp.asarray(0.5), jnp.asarray(0.25)
    return compiled(run, *numbers, options=options)
