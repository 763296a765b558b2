"""Native code of a kernel for one kind of batch: loaded from the cache on disk, or generated."""

import json
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import llvmlite
from jaxtyping import Array

from jaxmech.compiler.backends import disk_cache
from jaxmech.compiler.backends.cpu.codegen import Kind, Source, kind_of
from jaxmech.compiler.backends.cpu.compile import compile_module
from jaxmech.compiler.backends.cpu.runtime import call, is_loaded, load, processor
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256, sources_digest
from jaxmech.utils.jit_cache import uncollected

BRIEF = 500  # times that each operation is executed: fewer take less time than optimizing the code


class Facts(NamedTuple):
    """Properties of native code that its caller needs.

    Attributes:
        name: name of its function.
        lanes: number of trajectories computed side by side.
        results: indices of the results that it computes: those that are not empty.
    """

    name: str
    lanes: int
    results: tuple[int, ...]


class Program:
    """Native code, generated and compiled at most once, on first use.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch.
        kind: the kind of batch.
    """

    def __init__(self, kernel: Kernel, batched: frozenset[int], kind: Kind) -> None:
        self.kernel, self.batched, self.kind = kernel, batched, kind
        self._module = ""  # the text, between generation and compilation
        self._is_optimized = False

    @cached_property
    def facts(self) -> Facts:
        """The name, lanes and results of the code.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
        """
        if self._stored is None:
            try:
                return self._generated()
            except UnsupportedError as error:
                self._store({"unsupported": str(error)})
                raise
        header = json.loads(self._stored.partition(b"\n")[0])
        if "unsupported" in header:
            raise UnsupportedError(header["unsupported"])
        return Facts(header["name"], header["lanes"], tuple(header["results"]))

    def require_supported(self) -> None:
        """Raise `UnsupportedError` for an operation or a type for which there is no instruction."""
        _ = self.facts

    def prepare(self) -> None:
        """Compile and register it, or raise the error of the compiler."""
        self.registered_name()

    def registered_name(self) -> str:
        """The name under which the code is registered with XLA, compiled unless it was stored."""
        name = self.facts.name
        if not is_loaded(name):
            if self._stored is not None:
                code = self._stored.partition(b"\n")[2]
            else:
                if not self._module:
                    self._generated()
                code = compile_module(self._module, self._is_optimized)
                self._store(self.facts._asdict(), code)
            load(name, code)
        self._module = ""
        return name

    @uncollected
    def _generated(self) -> Facts:
        source = Source(self.kernel, self.batched, self.kind)
        name, self._module, self._is_optimized = source.module(self._should_optimize)
        return Facts(name, source.lanes, tuple(source.computed))

    @cached_property
    def _should_optimize(self) -> bool:
        kernel = self.kernel
        # The same code serves batches of many sizes, and the length of a `while` is unknown.
        has_many = self.kind is not Kind.ONE or kernel.has_while
        return kernel.is_optimized and (has_many or kernel.executed > BRIEF * kernel.operations)

    @cached_property
    def _key(self) -> str:
        kernel = self.kernel
        kind = sorted(self.batched), self.kind.name, kernel.results, kernel.sequences
        how = kernel.is_optimized, kernel.reading.origins.name
        return sha256(kernel.reading.digest, repr((kind, how)), _environment())

    @cached_property
    def _stored(self) -> bytes | None:
        return disk_cache.load(self._key) if disk_cache.cache_folder() else None

    def _store(self, header: dict[str, Any], code: bytes = b"") -> None:
        if disk_cache.cache_folder():
            disk_cache.store(self._key, json.dumps(header).encode() + b"\n" + code)


def program(kernel: Kernel, batched: frozenset[int], size: int) -> Program:
    """The native code of a kernel for a batch of a given size."""
    kind = batched, kind_of(size)
    if kind not in kernel.programs:
        kernel.programs[kind] = Program(kernel, *kind)
    return kernel.programs[kind]


@cache
def _environment() -> str:
    """A key of everything but the kernel: the compiler's source, its libraries, the processor."""
    sources = sources_digest(Path(__file__).parents[2])
    return repr((sources, jax.__version__, llvmlite.__version__, processor()))


def cpu_call(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
    """Call native code from a program that is being lowered; a batch fills at least one block.

    Raises:
        UnsupportedError: for an operation or a type without an instruction.
    """
    code = program(kernel, batched, size)
    indices = code.facts.results
    spare = max(code.facts.lanes - size, 0)
    padded_size = jnp.asarray(size + spare, jnp.int32)
    filled = [_filled(x, spare) if k in batched else x for k, x in enumerate(args)]
    shapes = [
        jax.ShapeDtypeStruct((size + spare, *aval.shape), aval.dtype) for aval in kernel.out_avals
    ]
    outs = call(code.registered_name(), [padded_size, *filled], [shapes[k] for k in indices])
    results = dict(zip(indices, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype))[:size] for k, x in enumerate(shapes)]


def _filled(x: Array, spare: int) -> Array:
    """Append copies of the last trajectory."""
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (spare, *x.shape[1:]))]) if spare else x
