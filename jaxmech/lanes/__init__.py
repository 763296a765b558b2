"""Batches: what a single-trajectory function becomes under `jax.vmap`. Knows no mechanics."""

from jaxmech.lanes.batching import batched as batched
from jaxmech.lanes.batching import hoisted as hoisted
from jaxmech.lanes.explanation import Explanation as Explanation
from jaxmech.lanes.operation import AbstractRule as AbstractRule
from jaxmech.lanes.operation import Flags as Flags
from jaxmech.lanes.operation import bind as bind
from jaxmech.lanes.operation import operation_of as operation_of
from jaxmech.lanes.switch import off as off
from jaxmech.lanes.switch import why_not as why_not
from jaxmech.lanes.vectorize import explain as explain
from jaxmech.lanes.vectorize import vectorize as vectorize
