"""The arithmetic peak of a device: independent chains of multiply-add in registers, measured."""

import jax.numpy as jnp
from jax import Array

from experiments.speed.routes import Prepared, compiled

CHAINS = 8  # side by side: each waits for its own previous result
LENGTH = 128
SIZES = {"cpu": 1 << 18, "cuda": 1 << 22}  # numbers, which fill any device


def operations(platform: str) -> int:
    """Operations of a run; a multiply-add is two."""
    return 2 * CHAINS * LENGTH * SIZES[platform]


def prepare(platform: str) -> Prepared:
    """Compile the run in the default precision."""

    def run(x: Array, factor: Array, term: Array) -> Array:
        chains = [x + k for k in range(CHAINS)]
        for _ in range(LENGTH):
            chains = [factor * y + term for y in chains]
        return sum(chains[1:], chains[0])

    # XLA uses half of the vector width of some processors by default.
    options = {"xla_cpu_prefer_vector_width": 512} if platform == "cpu" else None
    numbers = jnp.linspace(0.0, 1.0, SIZES[platform]), jnp.asarray(0.5), jnp.asarray(0.25)
    return compiled(run, *numbers, options=options)
