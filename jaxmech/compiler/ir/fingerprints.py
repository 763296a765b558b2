"""Fingerprints of nodes: what they compute, as a number that does not depend on folding.

The fingerprint of a sum, product or quotient is that of the fingerprints of its inputs modulo a
prime, with random numbers for leaves and other operations. So x and x + 0 y have the same one,
however the program is read: an origin of NaN that has been found once is found again when
products with zero before it are computed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

PRIME = 2**61 - 1
_ZERO_AT_ZERO = frozenset((
    "abs", "sin", "tan", "tanh", "asin", "atan", "sinh", "asinh", "atanh", "sqrt", "cbrt", "sign",
    "floor", "ceil", "round", "expm1", "log1p", "convert_element_type",
))  # fmt: skip


def of_constant(value: Any) -> int:
    """The fingerprint of a constant; a finite one is a fraction."""
    if not np.isfinite(value):
        return hash(value.tobytes()) % PRIME
    numerator, denominator = value.item().as_integer_ratio()
    return int(numerator * pow(denominator, -1, PRIME) % PRIME)


def of_leaf(op: str, params: Any, depth: int) -> int:
    """The fingerprint of a leaf of a graph with some graphs around it."""
    return hash((op, params, depth)) % PRIME


def of_operation(op: str, params: Any, dtype: np.dtype, inputs: Sequence[int]) -> int:
    """The fingerprint of an operation with these fingerprints of its inputs."""
    if op in ("add", "add_any"):
        return sum(inputs) % PRIME
    if op == "sub":
        return (inputs[0] - inputs[1]) % PRIME
    if op == "neg":
        return -inputs[0] % PRIME
    if op == "mul":
        return inputs[0] * inputs[1] % PRIME
    if op == "div" and inputs[1] and dtype.kind == "f":
        return inputs[0] * pow(inputs[1], -1, PRIME) % PRIME
    if op in ("select_n", "branch") and len(set(inputs[1:])) == 1:
        return inputs[1]
    if op in _ZERO_AT_ZERO and not any(inputs):
        return 0
    # Sorted, because folding may order the inputs differently when the program is read again;
    # without the number of a branch, which is a global counter.
    return hash((op, op != "branch" and params, *sorted(inputs))) % PRIME
