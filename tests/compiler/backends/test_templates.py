"""The text of LLVM in `.ll` files: with its parameters filled in, it is parsed and verified."""

from pathlib import Path

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import pytest

import jaxmech.compiler.backends.llvm
from jaxmech.compiler.backends import cuda
from jaxmech.compiler.backends.cpu import Kind, Source
from jaxmech.compiler.backends.cuda import Driver
from jaxmech.compiler.backends.llvm.builder import template
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from tests.compiler.backends.cuda.fake_driver import KERNEL, FakeDriver

FOLDER = Path(next(iter(jaxmech.compiler.backends.llvm.__path__)))


def kernel() -> Kernel:
    return function_kernel(jax.make_jaxpr(lambda x: (jnp.sin(x), x[0] * x[1]))(jnp.ones(2)))


def module(path: str) -> str:
    """A module that is generated from a file."""
    batched = frozenset({0})
    if path == "cpu_module.ll":
        return Source(kernel(), batched, Kind.LARGE).module(should_optimize=True)[1]
    if path == "cuda_handler.ll":
        library = Driver(FakeDriver(arrays=3))
        return cuda.handler_module("handler", library, KERNEL, 1, 2)
    return cuda.module(kernel(), batched)[1]


@pytest.mark.parametrize("path", ["cpu_module.ll", "cuda_handler.ll", "cuda_kernel.ll"])
def test_a_filled_template_is_verified_by_llvm(path: str) -> None:
    text = module(path)
    assert "$" not in text
    assert template(path).template.splitlines()[0] in text
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    defined = {function.name for function in parsed.functions if not function.is_declaration}
    assert len(defined) >= (1 if path == "cuda_kernel.ll" else 2)


def test_every_file_is_part_of_a_verified_module() -> None:
    texts = [module(path) for path in ("cpu_module.ll", "cuda_handler.ll", "cuda_kernel.ll")]
    files = sorted(file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.ll"))
    assert len(files) == 5
    for path in files:
        first = template(path).template.splitlines()[0].strip()
        assert any(first in text for text in texts), path
