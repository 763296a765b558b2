"""Functions of libdevice are linked, and a missing libdevice is reported."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler.backends import cuda as program
from jaxmech.compiler.backends.cuda import GpuKernel
from jaxmech.compiler.frontend.build import function_kernel


def ptx(fn: Any, dtype: Any) -> str:
    kernel = function_kernel(jax.make_jaxpr(fn)(jnp.zeros((), dtype)))
    return GpuKernel(kernel, frozenset([0])).ptx


def transcendental(x: Any) -> Any:
    one = (
        jnp.exp, jnp.log, jnp.tanh, jnp.arctan, jnp.arcsin, jnp.arccos, jnp.log1p, jnp.expm1,
        jnp.cbrt, jnp.sinh, jnp.cosh, jnp.arcsinh, jnp.arccosh, jnp.arctanh, jnp.exp2,
        jax.lax.erf, jax.lax.erfc, jax.nn.sigmoid,
    )  # fmt: skip
    two = (jnp.arctan2, jnp.power, jnp.nextafter, jnp.fmod)
    return [f(x) for f in one], [f(x, 1.5 + x) for f in two]


def ordinary(x: Any) -> Any:
    return jnp.sin(x), jnp.tan(x), jnp.sqrt(x), jnp.round(x), x / 3, jnp.where(x > 0, x, 1.0), x**3


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Any:
    program.bitcode.cache_clear()
    yield monkeypatch
    program.bitcode.cache_clear()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_linked(dtype: Any) -> None:
    try:
        program.bitcode()
    except program.LibdeviceError as error:
        pytest.skip(str(error))
    text = ptx(transcendental, dtype)
    assert "__nvvm_reflect" not in text
    assert ".extern" not in text
    assert ".func" not in text.replace(
        ".func  (.param .b64 func_retval0) __internal_accurate_pow", ""
    )
    assert (".f64" in text) == (dtype == np.float64)


def test_single_precision_stays_single() -> None:
    assert ".f64" not in ptx(ordinary, np.float32)
    assert ".f64" in ptx(ordinary, np.float64)


def test_where_it_is_not_needed_it_may_be_missing(forgetful: pytest.MonkeyPatch) -> None:
    forgetful.setattr(program, "folders", lambda: [Path("/nowhere")])
    assert ".entry" in ptx(ordinary, np.float64)
    with pytest.raises(program.LibdeviceError, match=r"in none of /nowhere; install .*CUDA_HOME"):
        ptx(jnp.exp, np.float64)


def test_a_toolkit_named_by_the_environment(forgetful: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "nvvm/libdevice/libdevice.10.bc"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"BC")
    forgetful.setenv("CUDA_HOME", str(tmp_path))
    forgetful.setattr(program, "find_spec", lambda name: None)
    assert program.bitcode() == b"BC"
