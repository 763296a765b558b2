"""Batches divided among four devices: each computes its part, with the bits of a single device."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from jaxmech.compiler.backends.cpu import vector_registers
from jaxmech.compiler.backends.sharding import factorizations, mesh_axes

# What a device computes at once, what the devices exchange, and how the result is divided.
Expected = tuple[list[int], list[str], str]
EXPECTED: dict[str, Expected] = {
    "batch": ([64], [], "P('x')"),
    "host parameter": ([64], [], "P('x')"),
    "vectorize": ([64], [], "P('x')"),
    "replicated": ([256], [], "P()"),
    "other axis": ([256], ["all-gather"], "P()"),
    "gradient, shared": ([64], ["all-reduce"], "P()"),
    "gradient, own": ([64], [], "P('x')"),
    "gradient inside": ([64], [], "P('x')"),
    "Jacobian": ([3 * 64], [], "P('x')"),
    "checkpoint": ([64], ["all-reduce"], "P()"),
    "in scan": ([64], [], "P('x')"),
    "scanned": ([16], [], "P(None, 'x')"),  # 16 of 64
    "outer axis shared": ([4 * 64], [], "P(None, 'x')"),
    "outer axis divided": ([256], [], "P('x')"),
    "both axes want it": ([4 * 64], ["all-gather"], "P(None, 'x')"),
    "first of a grid": ([128], [], "P('x')"),
    "second of a grid": ([128], [], "P('y')"),
    "whole grid, turned": ([64], [], "P(('y', 'x'))"),
    "two axes on a grid": ([2 * 128], [], "P('y', 'x')"),
    "fewer than lanes": ([max(vector_registers()[0], 3)], [], "P('x')"),  # three on each
    "one each": ([1], [], "P('x')"),
    "single": ([1], [], "P()"),
    "part of the mesh manual": ([128], [], "P('x')"),
}
AUTO: dict[str, Expected] = {
    "none": ([], [], "P()"),
    "gradient, other axis": ([256], ["all-gather"], "P()"),
    "parts of an axis": ([64], [], "P('x')"),
    "uneven": ([26], ["all-gather"], "P()"),
    "result everywhere": ([64], ["all-gather"], "P()"),
    "simulate": ([64], [], "P('x')"),
    "simulate, gradient": ([64], ["all-reduce"], "P()"),
}
BOTH = ("gradient, shared", "gradient, own", "in scan", "both axes want it", "two axes on a grid")
EXPLICIT: dict[str, Expected] = {name: EXPECTED[name] for name in BOTH} | {
    "none": ([], [], "P('x')"),
    "gradient, other axis": ([256], ["all-gather"], "P(None, 'x')"),
}
SLOW: dict[str, Expected] = {
    "simulate, forward": ([], ["all-reduce"], "P()"),  # plain JAX
    "simulate, each": ([64], [], "P('x')"),
    "simulate, Hessian": ([64], ["all-reduce"], "P()"),
    "sensitivities": ([64], [], "P('x')"),
}


def on_four_devices(*arguments: str) -> dict[str, Any]:
    """What `sharded` finds, in a process with four devices in which warnings are errors."""
    found_again = "ignore:Error reading persistent compilation cache entry"  # as in pyproject.toml
    done = subprocess.run(
        [sys.executable, "-Werror", "-W", found_again, "-m", "tests.compiler.sharded", *arguments],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "4", "JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def divided(kind: str, expected: dict[str, Expected]) -> None:
    found = on_four_devices(kind, *expected)
    for name, (sizes, exchanged, placed) in expected.items():
        case = found[name]
        assert (case["sizes"], case["exchanged"]) == (sizes, exchanged), name
        assert case["divided"].replace("P(None)", "P()") == placed, name
        assert case["error"] <= (1e-12 if "all-reduce" in exchanged else 0.0), name


@pytest.mark.slow
def test_with_axes_that_the_compiler_divides() -> None:
    divided("Auto", EXPECTED | AUTO)


def test_with_axes_that_the_types_divide() -> None:
    divided("Explicit", EXPLICIT)


@pytest.mark.slow
def test_derivatives_of_trajectories() -> None:
    divided("Auto", SLOW)


@pytest.mark.slow
def test_derivatives_without_jit_on_a_mesh_that_is_set() -> None:
    runs = "simulate, tangent", "simulate, gradient", "simulate, each"
    found = on_four_devices("Explicit", "without jit", *runs)
    for name, case in found.items():
        assert case["error"] <= 1e-12, name
    assert found["simulate, each"]["divided"] == "P('x',)"


def test_every_order_of_prime_factors() -> None:
    assert list(factorizations(12)) == [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    assert list(factorizations(1)) == [()]
    assert len(list(factorizations(1024))) == 1


@pytest.mark.parametrize(
    ("starts", "shape", "axes"),
    [
        ([0, 0, 0, 0], (2, 2), ()),
        ([0, 1, 2, 3], (2, 2), (0, 1)),
        ([0, 2, 1, 3], (2, 2), (1, 0)),
        ([0, 0, 2, 2], (2, 2), (0,)),
        ([0, 2, 0, 2], (2, 2), (1,)),
        ([0, 1, 3, 2], (2, 2), None),
        ([0, 0, 0, 3, 3, 3], (2, 3), (0,)),
        ([0, 0, 0, 3, 3, 3], (3, 2), None),
        ([0, 2, 4, 0, 2, 4], (2, 3), (1,)),
    ],
)
def test_which_axes_of_a_mesh_divide_an_array(
    starts: list[int], shape: tuple[int, ...], axes: tuple[int, ...] | None
) -> None:
    assert mesh_axes(np.array(starts), shape) == axes
