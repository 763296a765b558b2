"""Kernels for NVIDIA GPUs in PTX, with one thread for each trajectory.

A kernel is a function in which every thread loops over trajectories with a grid's stride. LLVM
translates it, linking functions of libdevice where needed, unless it is in the cache on disk.

It is loaded through CUDA's driver, `libcuda`, together with the first kernel, never on import:
by `cuLibraryLoadData` (CUDA 12), which needs no context: one handle serves all devices. Kernels
stay loaded until the process ends.

XLA calls the handler of a kernel from its own threads, several at once and for several devices. The
handler looks up the stream, and starts the kernel there: a thread for each trajectory, in a grid of
the size of the batch. The preceding stage loads the kernel for the device of the stream, if it is
not loaded yet: the call itself may be captured, to be replayed later.
"""

import ctypes
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
from jaxtyping import Array

from jaxmech.compiler.backends.disk_cache import AbstractProgram, Facts
from jaxmech.compiler.backends.llvm.builder import (
    CAPTURABLE,
    FFI_TYPES,
    AssemblyBuilder,
    answer_query,
    template,
)
from jaxmech.compiler.backends.llvm.lower import ARRAY_ALIGN, Body, computed_results
from jaxmech.compiler.frontend.build import Kernel
from jaxmech.compiler.ir.loops import UnsupportedError
from jaxmech.utils.digests import sha256

# Threads of a block: two warps, so that for any number of registers at most one of the warps that
# fit a multiprocessor is missing, and a small batch spreads over all of them. Not measured.
BLOCK = 64
MOST_SCRATCH = 2**19 - 2**12  # bytes of a thread's local memory, with some left for spills
MOST_ARRAYS = 500  # pointers: a kernel has 4,352 bytes of parameters up to PTX 8.0

_MODULE = template("cuda_kernel.ll")


class GpuKernel(AbstractProgram):
    """A kernel for the GPU, whose text serves batches of any size.

    Args:
        kernel: the kernel of one trajectory.
        batched: indices of the arguments that differ in a batch, which is their first axis.
        target: the oldest supported architecture; newer ones run the kernel too.
    """

    def __init__(self, kernel: Kernel, batched: frozenset[int], target: str | None = None) -> None:
        self.target = target or _target()
        super().__init__(kernel, batched, ("cuda", self.target))
        self._ptx = ""

    @property
    def ptx(self) -> str:
        """The text of the kernel, which a driver compiles for the installed GPU.

        Raises:
            UnsupportedError: for an operation or a type without an instruction, or if a thread
                cannot have as much memory.
            LibdeviceError: if a function such as `exp` is needed, and libdevice is not installed.
        """
        self.require_supported()
        return self._ptx if self._stored_code is None else self._stored_code.decode()

    def prepare(self) -> None:
        """Generate it, or raise the error of the compiler; the driver compiles it later."""
        self.require_supported()

    def registered_name(self) -> str:
        """The name under which the kernel is registered with XLA.

        Raises:
            UnsupportedError: for an operation or a type without an instruction.
            CudaError: if the driver is too old, or refuses the kernel.
        """
        name, _, results = self.facts
        load(name, self.ptx, len(self.kernel.avals), len(results))
        return name

    def _generated(self) -> Facts:
        name, text = module(self.kernel, self.batched)
        self._ptx = ptx(text, self.target)
        facts = Facts(name, 1, tuple(computed_results(self.kernel)))
        self._store(facts._asdict(), self._ptx.encode())
        return facts


def program(kernel: Kernel, batched: frozenset[int], size: int) -> GpuKernel:
    """The GPU kernel of a kernel, for batches of any size."""
    kind = "cuda", batched
    if kind not in kernel.programs:
        kernel.programs[kind] = GpuKernel(kernel, batched)
    return kernel.programs[kind]


LARGEST = 2**31 - 1  # the largest number of trajectories of a kernel


def cuda_call(*args: Array, kernel: Kernel, batched: frozenset[int], size: int) -> list[Array]:
    """Call a kernel from a program that is being lowered.

    Raises:
        UnsupportedError: for an operation or a type without an instruction.
        ValueError: if too many trajectories.
        CudaError: if the driver is too old, or refuses the kernel.
    """
    if size > LARGEST:
        raise ValueError(
            f"A batch on one GPU must have at most {LARGEST:,} trajectories, but has {size:,}; run "
            "it in parts, such as with `jax.lax.map(..., batch_size=...)`."
        )
    code = program(kernel, batched, size)
    shapes = [jax.ShapeDtypeStruct((size, *aval.shape), aval.dtype) for aval in kernel.out_avals]
    indices = code.facts.results
    out_shapes = [shapes[k] for k in indices]
    outs = jax.ffi.ffi_call(code.registered_name(), out_shapes)(*args) if indices else []
    results = dict(zip(indices, outs, strict=True))
    return [results.get(k, jnp.zeros(x.shape, x.dtype)) for k, x in enumerate(shapes)]


def module(kernel: Kernel, batched: frozenset[int]) -> tuple[str, str]:
    """The name of the function, and the text of its LLVM module.

    Raises:
        UnsupportedError: for an operation or a type without an instruction, or if a thread cannot
            have as much memory.
    """
    builder = AssemblyBuilder(1, on_gpu=True)
    builder.label("body")
    Body(builder, kernel, batched, "%trajectory", lambda k: f"%array{k}").write()
    arguments = len(kernel.avals)
    arrays = arguments + len(computed_results(kernel))
    if builder.bytes > MOST_SCRATCH or arrays > MOST_ARRAYS:
        raise UnsupportedError(
            f"{arrays} arrays and {builder.bytes:,} bytes of memory for each thread of a GPU, "
            f"which has {MOST_ARRAYS} and {MOST_SCRATCH:,} at most"
        )
    parts = {
        "tables": "\n".join(builder.tables),
        "declared": "\n".join(sorted(builder.declared.values())),
        # `noalias` holds because XLA allocates results separately; it lets loads move across
        # stores.
        "arrays": ", ".join(
            f"ptr noalias {'readonly ' if k < arguments else ''}align {ARRAY_ALIGN} %array{k}"
            for k in range(arrays)
        ),
        "scratch": builder.bytes,
        "last": builder.block,
        "lines": "\n".join(builder.lines[1:]),
    }
    name = f"jaxmech_{sha256(_MODULE.template, str(parts))[:32]}"
    return name, _MODULE.substitute(parts, name=name)


@cache
def _target() -> str:
    """The oldest supported architecture, whose kernels newer devices run too."""
    cuda = driver()
    oldest = int(OLDEST.removeprefix("sm_"))
    return f"sm_{min([oldest, *(cuda.capabilities() if cuda else [])])}"


_FILE = "nvvm/libdevice/libdevice.10.bc"
_WHEELS = ("cuda_nvcc", "cu13")  # folders of CUDA 12's and CUDA 13's wheels in `nvidia`
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_USUAL = Path("/usr/local/cuda")


class LibdeviceError(RuntimeError):
    """libdevice is needed and not installed."""


@cache
def bitcode() -> bytes:
    """Return the content of the file.

    Raises:
        LibdeviceError: if it is not found; the message says how to install it.
    """
    positions = folders()
    for folder in positions:
        file = folder / _FILE
        if file.is_file():
            return file.read_bytes()
    raise LibdeviceError(
        f"A GPU kernel that needs exp, log, pow or the like needs {_FILE}, which is in none of "
        f"{', '.join(map(str, positions)) or 'the installed packages'}; install `jax[cuda12]` or "
        "`jax[cuda13]`, or set the environment variable CUDA_HOME to the folder of a "
        "CUDA toolkit."
    )


def folders() -> list[Path]:
    """Folders where CUDA may be: wheels, toolkits named in the environment, the default path."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations or [] if spec else []
    wheels = [Path(root, name) for root in roots for name in _WHEELS]
    configured = [Path(os.environ[name]) for name in _TOOLKITS if os.environ.get(name)]
    return [*wheels, *configured, _USUAL]


OLDEST = "sm_75"  # Turing: with PTX 6.3 it is accepted by every driver of CUDA 12 and 13
_TRIPLE = "nvptx64-nvidia-cuda"


def ptx(module: str, target: str) -> str:
    """Translate a module to PTX.

    Raises:
        LibdeviceError: if the module needs libdevice, which is not installed.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=target, opt=3)
    parsed = llvm.parse_assembly(module)
    parsed.triple, parsed.data_layout = _TRIPLE, str(machine.target_data)
    if "@__nv_" in module:
        _link_libdevice(parsed, machine)
    return machine.emit_assembly(parsed)


def _link_libdevice(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Link the functions of libdevice that the module calls, for internal use."""
    library = llvm.parse_bitcode(bitcode())
    library.triple, library.data_layout = module.triple, module.data_layout
    names = [function.name for function in library.functions if not function.is_declaration]
    module.link_in(library)
    for name in names:
        # Not exported, so that unused functions are dropped.
        module.get_function(name).linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)


_LIBRARY = "libcuda.so.1"
_LEAST_VERSION = 12000  # of CUDA, which introduced `cuLibraryLoadData`
_NO_DEVICE = 100
_STUB = 34  # a library to link with, without a driver
_LOG_BUFFER, _LOG_SIZE = 5, 6  # options of the driver's compiler
_LOG_BYTES = 8192
_MAJOR, _MINOR = 75, 76  # attributes of a device: its compute capability
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxGetState": (c_int, POINTER(c_uint), POINTER(c_int)),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
    "cuLibraryLoadData": (
        POINTER(c_void_p), c_char_p, POINTER(c_int), POINTER(c_void_p), c_uint, c_void_p, c_void_p,
        c_uint,
    ),
    "cuLibraryGetKernel": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuKernelGetFunction": (POINTER(c_void_p), c_void_p),
}  # fmt: skip
_ADVICE = {
    209: "the GPU is older than the kernel is written for",  # no binary for GPU
    218: "please report this",  # invalid PTX
    221: "install NVIDIA's driver with its compiler, libnvidia-ptxjitcompiler",
    222: "update NVIDIA's driver",  # unsupported version of PTX
    223: "unset the environment variable CUDA_DISABLE_PTX_JIT",
}


class CudaError(RuntimeError):
    """The driver cannot be used, or refuses a kernel."""


class Driver:
    """The functions of the driver.

    Args:
        library: the loaded library, with the functions as attributes.

    Attributes:
        version: the CUDA release that the driver supports.

    Raises:
        CudaError: if the driver is too old.
    """

    def __init__(self, library: Any) -> None:
        self._library, self._kept = library, list[Any]()
        version = c_int()
        self.require(self.function("cuDriverGetVersion")(byref(version)), "its version is unknown")
        self.version = f"{version.value // 1000}.{version.value % 1000 // 10}"
        if version.value < _LEAST_VERSION:
            raise CudaError(
                f"NVIDIA's driver on this machine is for CUDA {self.version}, and kernels need "
                f"12.0: update it (to version 525 or later). {_OTHERWISE}"
            )

    def address(self, name: str) -> int:
        """Return the address of a function."""
        address = ctypes.cast(getattr(self._library, name), c_void_p).value
        assert address is not None
        return address

    def function(self, name: str) -> Any:
        """A function of the table of prototypes, which returns an error code, or 0."""
        return ctypes.CFUNCTYPE(c_int, *_PROTOTYPES[name])(self.address(name))

    def require(self, code: int, action: str, log: bytes = b"") -> None:
        """Raise a CudaError that names the failed action, unless the code is 0."""
        if code == 0:
            return
        name, description = c_char_p(), c_char_p()
        self.function("cuGetErrorName")(code, byref(name))
        self.function("cuGetErrorString")(code, byref(description))
        parts = [(x.value or b"unknown").decode(errors="replace") for x in (name, description)]
        message = f"NVIDIA's driver: {action}: {parts[0]} (error {code}: {parts[1]})"
        message += f"; {_ADVICE[code]}" if code in _ADVICE else ""
        message += f"\n{log.decode(errors='replace').strip()}\n" if log.strip() else ". "
        raise CudaError(message + _OTHERWISE)

    def kernel(self, ptx: str, entry: str) -> int:
        """The handle of a kernel, compiled for the devices that are in use.

        Raises:
            CudaError: if the driver refuses it.
        """
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_LOG_BUFFER, _LOG_SIZE)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        library, kernel, source = c_void_p(), c_void_p(), ptx.encode()
        # It may be compiled much later, when a device is first used, and then the log is written.
        self._kept.append((log, options, values, source))
        loaded = self.function("cuLibraryLoadData")(
            byref(library), source, options, values, 2, None, None, 0
        )
        self.require(loaded, "a kernel cannot be compiled", log.value)
        code = self.function("cuLibraryGetKernel")(byref(kernel), library, entry.encode())
        self.require(code, "a kernel has no entry", log.value)
        for device in self.devices():
            self._compile(kernel, device, log)
        assert kernel.value is not None
        return kernel.value

    def _compile(self, kernel: c_void_p, device: int, log: Any) -> None:
        """Compile and load a kernel for a device now, if the device is in use."""
        # Otherwise the first call would do so, perhaps while it is captured, which is an error.
        flags, is_active, context, function = c_uint(), c_int(), c_void_p(), c_void_p()
        state = self.function("cuDevicePrimaryCtxGetState")
        self.require(state(device, byref(flags), byref(is_active)), "a device has no state")
        if not is_active.value:
            return
        retained = self.function("cuDevicePrimaryCtxRetain")(byref(context), device)
        self.require(retained, "a device cannot be used")
        try:
            self.require(self.function("cuCtxPushCurrent_v2")(context), "a device cannot be used")
            code = self.function("cuKernelGetFunction")(byref(function), kernel)
            self.function("cuCtxPopCurrent_v2")(byref(context))
            self.require(code, f"a kernel cannot be compiled for device {device}", log.value)
        finally:
            self.function("cuDevicePrimaryCtxRelease_v2")(device)

    def devices(self) -> list[int]:
        """The handles of all devices that this process may use."""
        count, handle, devices = c_int(), c_int(), []
        self.require(self.function("cuDeviceGetCount")(byref(count)), "devices cannot be counted")
        for k in range(count.value):
            self.require(self.function("cuDeviceGet")(byref(handle), k), f"there is no device {k}")
            devices.append(handle.value)
        return devices

    def capabilities(self) -> list[int]:
        """The compute capabilities of all devices, 75 for 7.5."""
        attribute, number = self.function("cuDeviceGetAttribute"), c_int()
        capabilities = []
        for device in self.devices():
            capability = 0
            for position in (_MAJOR, _MINOR):
                self.require(
                    attribute(byref(number), position, device), "a device has no capability"
                )
                capability = 10 * capability + number.value
            capabilities.append(capability)
        return capabilities


_OTHERWISE = "Within `jaxmech.compiler.off()` batches run without such kernels."


@cache
def driver() -> Driver | None:
    """The driver of this machine; None where there is none, or no device.

    Raises:
        CudaError: if it cannot be used.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    code = library.cuInit(0)
    if code in (_NO_DEVICE, _STUB):
        return None
    loaded_driver = Driver(library)
    loaded_driver.require(code, "it cannot be used")
    return loaded_driver


_CALLS = (
    "cuLaunchKernel",
    "cuStreamGetCtx",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuKernelGetFunction",
    "cuGetErrorName",
    "cuGetErrorString",
)
_HANDLER = template("cuda_handler.ll")


class _Loaded:
    """The objects that keep kernels and handlers registered with XLA alive."""

    def __init__(self) -> None:
        self.engines: dict[str, Any] = {}
        self.one_at_a_time = Lock()


_LOADED = _Loaded()


def load(name: str, ptx: str, arguments: int, results: int) -> None:
    """Register a kernel with XLA under its name; do nothing on a machine without a GPU.

    Args:
        name: name of its function, of the batch size and the addresses of all arrays.
        ptx: text of the kernel.
        arguments: number of input arrays.
        results: number of output arrays, at least one.

    Raises:
        CudaError: if the driver is too old, or refuses the kernel.
    """
    cuda = driver()
    if cuda is None:
        return  # the program can be inspected, but not run
    with _LOADED.one_at_a_time:
        if name in _LOADED.engines:
            return
        handle = cuda.kernel(ptx, name)
        engine, address = handler(name, cuda, handle, arguments, results)
        capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address))
        stages = {"initialize": capsule, "execute": capsule}
        jax.ffi.register_ffi_target(name, stages, platform="CUDA")
        _LOADED.engines[name] = engine


def handler(name: str, cuda: Driver, kernel: int, arguments: int, results: int) -> tuple[Any, int]:
    """The handler of a kernel: the object that keeps it alive, and its address."""
    source = handler_module(name, cuda, kernel, arguments, results)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # A handler only passes addresses on: compile time matters more than run time.
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(source), machine)
    engine.finalize_object()
    return engine, engine.get_function_address(name)


def handler_module(name: str, cuda: Driver, kernel: int, arguments: int, results: int) -> str:
    """The text of the module of a handler, with the arguments of `handler`."""
    return _HANDLER.substitute(
        name=name,
        types=FFI_TYPES,
        described=answer_query(CAPTURABLE),
        parameters=1 + arguments + results,
        pointers="\n".join(_pointers(arguments, results)),
        first_result=arguments,
        kernel=_pointer(kernel),
        block=BLOCK,
        spare=BLOCK - 1,
        **{call: _pointer(cuda.address(call)) for call in _CALLS},
    )


def _pointers(arguments: int, results: int) -> Sequence[str]:
    """The lines that write the addresses of all arrays into the parameters."""
    lines = []
    for k in range(arguments + results):
        source, position = ("args", k) if k < arguments else ("rets", k - arguments)
        lines += [
            f"  %buffer{k}.at = getelementptr ptr, ptr %{source}, i64 {position}",
            f"  %buffer{k} = load ptr, ptr %buffer{k}.at",
            f"  %data{k}.at = getelementptr %buffer, ptr %buffer{k}, i64 0, i32 3",
            f"  %place{k} = getelementptr ptr, ptr %parameters, i64 {1 + k}",
            f"  store ptr %data{k}.at, ptr %place{k}",
        ]
    return lines


def _pointer(address: int) -> str:
    return f"inttoptr (i64 {address} to ptr)"
