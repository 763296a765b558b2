# ruff: noqa: N802  (the functions have the names of the driver)
"""A CUDA driver and a call frame of XLA made of ctypes, which record all calls."""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint, c_void_p
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar

import numpy as np

OUT_OF_MEMORY, UNSUPPORTED_PTX = 2, 222
NAMES = {2: b"CUDA_ERROR_OUT_OF_MEMORY", 222: b"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}
TEXTS = {2: b"out of memory", 222: b"the provided PTX was compiled with an unsupported toolchain."}


@dataclass(frozen=True)
class Launch:
    """One call of `cuLaunchKernel`."""

    kernel: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    stream: int
    size: int
    pointers: tuple[int, ...]


@dataclass
class FakeDriver:
    """The functions of the driver as attributes, like a library loaded by ctypes.

    Attributes:
        arrays: number of addresses among the arguments of a kernel.
        version: CUDA release of the driver.
        capabilities: compute capabilities of the devices.
        active: indices of the devices in use.
        failing: error codes by the name of the function that returns them.
        log: text that the compiler writes about its error.
        during_launch: function called within each launch.
    """

    arrays: int = 0
    version: int = 12080
    capabilities: Sequence[int] = (90,)
    active: Sequence[int] = (0,)
    failing: dict[str, int] = field(default_factory=dict)
    log: bytes = b""
    during_launch: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.launches: list[Launch] = []
        self.called: list[tuple[str, Any]] = []
        self.loaded: list[bytes] = []
        self.contexts: list[int] = []  # those that are current, the last one on top
        self._lock = Lock()
        for name, arguments in _PROTOTYPES.items():
            setattr(self, name, ctypes.CFUNCTYPE(c_int, *arguments)(self._function(name)))

    def _function(self, name: str) -> Callable[..., int]:
        def function(*args: Any) -> int:
            code = self.failing.get(name, 0)
            if not code or name == "cuLibraryLoadData":
                getattr(self, f"_{name}")(*args)
            return code

        return function

    def _cuInit(self, flags: int) -> None:
        assert flags == 0

    def _cuDriverGetVersion(self, version: Any) -> None:
        version[0] = self.version

    def _cuGetErrorName(self, code: int, text: Any) -> None:
        text[0] = NAMES.get(code)

    def _cuGetErrorString(self, code: int, text: Any) -> None:
        text[0] = TEXTS.get(code)

    def _cuDeviceGetCount(self, count: Any) -> None:
        count[0] = len(self.capabilities)

    def _cuDeviceGet(self, device: Any, number: int) -> None:
        device[0] = number

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> None:
        value[0] = divmod(self.capabilities[device], 10)[{75: 0, 76: 1}[attribute]]

    def _cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> None:
        active[0] = device in self.active

    def _cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> None:
        self.called.append(("retain", device))
        context[0] = _context(device)

    def _cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
        self.called.append(("release", device))

    def _cuStreamGetCtx(self, stream: int, context: Any) -> None:
        context[0] = _context(stream // 1000)

    def _cuCtxPushCurrent_v2(self, context: int) -> None:
        self.contexts.append(context)

    def _cuCtxPopCurrent_v2(self, context: Any) -> None:
        context[0] = self.contexts.pop()

    def _cuLibraryLoadData(
        self, library: Any, text: bytes, options: Any, values: Any, count: int, *rest: Any
    ) -> None:
        assert list(options[:count]) == [5, 6]
        self.loaded.append(text)
        ctypes.memmove(values[0], self.log + b"\0", min(len(self.log) + 1, values[1]))
        library[0] = 70

    def _cuLibraryGetKernel(self, kernel: Any, library: int, name: bytes) -> None:
        assert library == 70
        self.called.append(("kernel", name))
        kernel[0] = KERNEL

    def _cuKernelGetFunction(self, function: Any, kernel: int) -> None:
        self.called.append(("function", (self.contexts[-1], kernel)))
        function[0] = 1

    def _cuLaunchKernel(
        self, kernel: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int,
        stream: int, parameters: Any, extra: Any,
    ) -> None:  # fmt: skip
        assert not extra
        self.during_launch()
        size = ctypes.cast(parameters[0], POINTER(c_int))[0]
        arrays = range(1, 1 + self.arrays)
        pointers = tuple(ctypes.cast(parameters[k], POINTER(c_void_p))[0] or 0 for k in arrays)
        launch = Launch(kernel, (gx, gy, gz), (bx, by, bz), shared, stream, size, pointers)
        with self._lock:
            self.launches.append(launch)


KERNEL = 0x7FFF_1234_5678


def _context(device: int) -> int:
    return 0x1000 + device


_OUT, _PTR = POINTER(c_void_p), c_void_p
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxGetState": (c_int, POINTER(c_uint), POINTER(c_int)),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuStreamGetCtx": (_PTR, _OUT),
    "cuCtxPushCurrent_v2": (_PTR,),
    "cuCtxPopCurrent_v2": (_OUT,),
    "cuLibraryLoadData": (_OUT, c_char_p, POINTER(c_int), _OUT, c_uint, _PTR, _PTR, c_uint),
    "cuLibraryGetKernel": (_OUT, _PTR, c_char_p),
    "cuKernelGetFunction": (_OUT, _PTR),
    "cuLaunchKernel": (_PTR, *[c_uint] * 7, _PTR, _OUT, _OUT),
}


# The structures of xla/ffi/api/c_api.h.
class Buffer(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("dtype", c_int), ("data", _PTR),
        ("rank", c_int64), ("dims", POINTER(c_int64)),
    ]  # fmt: skip


class Arrays(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("size", c_int64),
        ("types", POINTER(c_int)), ("items", POINTER(POINTER(Buffer))),
    ]  # fmt: skip


class Attributes(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("size", c_int64), ("types", _PTR),
        ("names", _PTR), ("items", _PTR),
    ]  # fmt: skip


class Version(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("major", c_int), ("minor", c_int)
    ]  # fmt: skip


class Metadata(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("version", Version), ("traits", c_uint), ("state_type", c_int64)
    ]  # fmt: skip


class Extension(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("type", c_int), ("next", _PTR), ("metadata", POINTER(Metadata))
    ]  # fmt: skip


class StreamGet(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("context", _PTR), ("stream", _PTR)
    ]  # fmt: skip


class ErrorCreate(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("message", c_char_p), ("code", c_int)
    ]  # fmt: skip


class Api(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", _PTR), ("version", Version), ("internal", _PTR),
        ("functions", _PTR * 18),
    ]  # fmt: skip


class Frame(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("extension", POINTER(Extension)), ("api", POINTER(Api)),
        ("context", _PTR), ("stage", c_int), ("arguments", Arrays), ("results", Arrays),
        ("attributes", Attributes), ("future", _PTR),
    ]  # fmt: skip


@dataclass
class FakeXla:
    """XLA's side of a call: its table of functions, and the frames of calls.

    Attributes:
        refused: what is returned in place of a stream, the address of an error.
    """

    refused: int = 0

    def __post_init__(self) -> None:
        self.errors: list[tuple[str, int]] = []
        find = ctypes.CFUNCTYPE(_PTR, POINTER(StreamGet))(self._stream)
        create = ctypes.CFUNCTYPE(_PTR, POINTER(ErrorCreate))(self._error)
        self.api = Api(ctypes.sizeof(Api), None, Version(24, None, 0, 3))
        self.api.functions[0] = ctypes.cast(create, _PTR)
        self.api.functions[4] = ctypes.cast(find, _PTR)
        self._kept: list[Any] = [find, create]

    def _stream(self, request: Any) -> int:
        assert request.contents.struct_size == ctypes.sizeof(StreamGet)
        assert request.contents.extension is None
        if not self.refused:
            request.contents.stream = 1000 * request.contents.context  # a stream of a device
        return self.refused

    def _error(self, request: Any) -> int:
        assert request.contents.struct_size == 28
        self.errors.append((request.contents.message.decode(), request.contents.code))
        return 0xE0 + len(self.errors)

    def frame(
        self, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray], *, device: int = 1,
        stage: int = 3,
    ) -> Frame:  # fmt: skip
        """The frame of a call for a device, whose context has its number."""
        both = [self._arrays(arrays) for arrays in (arguments, results)]
        attributes = Attributes(ctypes.sizeof(Attributes))
        size = Frame.future.offset
        return Frame(size, None, ctypes.pointer(self.api), device, stage, *both, attributes, None)

    def _arrays(self, arrays: Sequence[np.ndarray]) -> Arrays:
        buffers = []
        for array in arrays:
            dims = (c_int64 * array.ndim)(*array.shape)
            data = array.ctypes.data if array.size else None
            size = ctypes.sizeof(Buffer)
            buffers.append(Buffer(size, None, 12, data, array.ndim, dims))
        items = (POINTER(Buffer) * len(buffers))(*map(ctypes.pointer, buffers))
        types = (c_int * len(buffers))(*[1] * len(buffers))
        self._kept.append((buffers, items, types))
        return Arrays(ctypes.sizeof(Arrays), None, len(buffers), types, items)
