"""Batches: what happens to a single-trajectory function under `jax.vmap`. Knows no mechanics."""

from jaxmech.lanes.batching import batched as batched
