"""NVIDIA's assembler accepts the kernels for every architecture; a small model does not spill."""

from typing import Any

import jax
import numpy as np
import pytest

from experiments.cuda import ptxas
from experiments.cuda.cases import case
from experiments.cuda.kernels import kernels
from jaxmech.compiler.backends.cuda import GpuKernel
from jaxmech.compiler.frontend.build import function_kernel
from tests.compiler.test_while import LOOPS

pytestmark = pytest.mark.skipif(
    ptxas.ptxas() is None, reason="ptxas is missing: pip install nvidia-cuda-nvcc-cu12"
)


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["f64", "f32"])
def texts(request: pytest.FixtureRequest) -> tuple[Any, list[str]]:
    one = case("pendulum", "gradient", 3, 100, request.param)
    made = [GpuKernel(*called).ptx for called in kernels(one.batched, *one.args)]
    return request.param, made


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [ptxas.ARCHITECTURES[0], ptxas.ARCHITECTURES[-1]])
def test_a_gradient_needs_no_more_than_the_registers(
    texts: tuple[Any, list[str]], architecture: str
) -> None:
    if architecture not in ptxas.architectures():
        pytest.skip(f"ptxas {ptxas.version()} does not know {architecture}")
    dtype, made = texts
    assert len(made) == 2  # the run, and the derivative
    for text in made:
        found = ptxas.assembled(text, architecture)
        assert 0 < found.registers <= 255
        assert found.spilled == 0
        assert (".f64" in text) == (dtype == np.float64)


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_end_by_a_condition(name: str, dtype: Any) -> None:
    kernel = function_kernel(jax.make_jaxpr(LOOPS[name])(np.ones((), dtype)))
    text = GpuKernel(kernel, frozenset([0])).ptx
    # The marks of a scan are in double precision.
    assert (".f64" in text) == (dtype == np.float64 or name == "in a scan")
    for architecture in ptxas.architectures():
        found = ptxas.assembled(text, architecture)
        assert 0 < found.registers <= 255
        assert found.spilled == 0
