"""Batches: what a single-trajectory function becomes under `jax.vmap`. Knows no mechanics."""

from jaxmech.lanes.batching import batched as batched
from jaxmech.lanes.batching import hoisted as hoisted
from jaxmech.lanes.tuning import is_tuned as is_tuned
from jaxmech.lanes.tuning import tune_cpu as tune_cpu
from jaxmech.lanes.vectorize import Explanation as Explanation
from jaxmech.lanes.vectorize import explain as explain
from jaxmech.lanes.vectorize import vectorize as vectorize
