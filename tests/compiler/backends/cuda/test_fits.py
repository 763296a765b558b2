"""Kernels of a fit for a GPU, run by the processor, reproduce the fit; `ptxas` accepts them."""

import numpy as np
import pytest

from experiments.cuda import ptxas
from experiments.cuda.host import on_host
from experiments.cuda.kernels import Called, running
from jaxmech import FixedSteps
from jaxmech.compiler.backends.cuda import GpuKernel
from jaxmech.identify import Fit, fit
from tests.identify.swings import BEGIN, FREE, SWING, noisy, swings


@pytest.mark.slow
def test_kernels_of_a_fit() -> None:
    rng = np.random.default_rng(3)
    recordings = [noisy(one, rng) for one in swings()]

    def found() -> Fit:
        return fit(SWING, recordings, BEGIN, free=FREE, steps=FixedSteps(1))

    with running(on_host) as kernels:
        ours = found()
    expected = found()
    np.testing.assert_allclose(ours.values, expected.values, rtol=1e-9)
    np.testing.assert_allclose(
        ours.uncertainty.standard_errors, expected.uncertainty.standard_errors, rtol=1e-6
    )
    assert kernels
    for called in kernels:
        assert_assembled(called)


def assert_assembled(called: Called) -> None:
    text = GpuKernel(*called).ptx
    if ptxas.ptxas() is not None:
        assert 0 < ptxas.assembled(text, "sm_90").registers <= 255
    else:
        assert ".entry" in text
