"""The handler that starts a kernel on a GPU, against a driver that records its calls."""

import ctypes
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import jax
import numpy as np
import pytest

from jaxmech.compiler.backends import cuda as runtime
from jaxmech.compiler.backends.cuda import CudaError, Driver
from tests.compiler.backends.cuda.fake_driver import (
    KERNEL,
    OUT_OF_MEMORY,
    UNSUPPORTED_PTX,
    Extension,
    FakeDriver,
    FakeXla,
    Frame,
    Metadata,
)

OTHERWISE = "Within `jaxmech.compiler.off()` batches run without such kernels."
INITIALIZE, EXECUTE = 2, 3
Call = Callable[[Frame], int | None]


def handler_of(library: FakeDriver, arguments: int, results: int) -> tuple[Any, Call]:
    """The handler as a function, with the object that keeps it alive."""
    engine, address = runtime.handler("handler", Driver(library), KERNEL, arguments, results)
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))(address)
    return engine, lambda frame: function(ctypes.byref(frame))


@pytest.fixture(scope="module")
def made() -> tuple[FakeDriver, Any, Call]:
    """A handler of two arguments and two results."""
    library = FakeDriver(arrays=4)
    return library, *handler_of(library, 2, 2)


@pytest.fixture
def case(made: tuple[FakeDriver, Any, Call]) -> tuple[FakeDriver, Call]:
    library, _, call = made
    library.launches.clear()
    library.called.clear()
    library.failing, library.during_launch = {}, lambda: None
    return library, call


def arrays(size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arguments, the first of which all trajectories share, and results."""
    batch = np.empty((size, 3))
    return [np.empty(5), batch], [np.empty((size, 2), np.float32), np.empty(size)]


@pytest.mark.parametrize(
    ("size", "grid"), [(1, 1), (63, 1), (64, 1), (65, 2), (1000, 16), (10**6 + 1, 15626)]
)
def test_what_is_launched(case: tuple[FakeDriver, Call], size: int, grid: int) -> None:
    library, call = case
    given, results = arrays(size)
    assert call(FakeXla().frame(given, results)) is None
    (launch,) = library.launches
    assert (launch.kernel, launch.grid) == (KERNEL, (grid, 1, 1))
    assert launch.block == (runtime.BLOCK, 1, 1)
    assert (launch.size, launch.stream, launch.shared) == (size, 1000, 0)
    assert launch.pointers == tuple(x.ctypes.data for x in (*given, *results))


def test_nothing_is_launched_for_an_empty_batch(case: tuple[FakeDriver, Call]) -> None:
    library, call = case
    assert call(FakeXla().frame(*arrays(0))) is None
    assert library.launches == []


def test_an_array_without_numbers_has_no_address(case: tuple[FakeDriver, Call]) -> None:
    library, call = case
    _, results = arrays(7)
    given = [np.empty((0, 3)), np.empty((7, 0))]
    assert call(FakeXla().frame(given, results)) is None
    assert library.launches[0].pointers[:2] == (0, 0)


def test_the_metadata_of_the_handler(case: tuple[FakeDriver, Call]) -> None:
    """Interface version 0.1, and that its calls may be captured."""
    library, call = case
    metadata = Metadata()
    metadata.version.major = metadata.version.minor = 99
    extension = Extension(ctypes.sizeof(Extension), 1, None, ctypes.pointer(metadata))
    frame = FakeXla().frame([], [])
    frame.extension = ctypes.pointer(extension)
    assert call(frame) is None
    assert (metadata.version.major, metadata.version.minor, metadata.traits) == (0, 1, 1)
    assert library.launches == []


def test_the_kernel_is_loaded_before_it_is_called(case: tuple[FakeDriver, Call]) -> None:
    """The preceding stage loads the kernel for the device of the stream, in its context."""
    library, call = case
    assert call(FakeXla().frame(*arrays(5), device=3, stage=INITIALIZE)) is None
    assert library.called == [("function", (0x1003, KERNEL))]
    assert library.launches == library.contexts == []


@pytest.mark.parametrize("stage", [0, 1, 4])
def test_other_stages_do_nothing(case: tuple[FakeDriver, Call], stage: int) -> None:
    library, call = case
    assert call(FakeXla(refused=0xBAD).frame(*arrays(5), stage=stage)) is None
    assert library.launches == library.called == []


@pytest.mark.parametrize("stage", [INITIALIZE, EXECUTE])
def test_an_error_of_xla_is_passed_on(case: tuple[FakeDriver, Call], stage: int) -> None:
    library, call = case
    xla = FakeXla(refused=0xBAD)
    assert call(xla.frame(*arrays(5), stage=stage)) == 0xBAD
    assert library.launches == library.called == xla.errors == []


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (OUT_OF_MEMORY, 8, "CUDA_ERROR_OUT_OF_MEMORY (CUDA error 2: out of memory). "),
        (700, 13, "unknown (CUDA error 700: unknown). "),
    ],
)
@pytest.mark.parametrize(
    ("function", "stage", "what"),
    [
        ("cuLaunchKernel", EXECUTE, "started"),
        ("cuStreamGetCtx", INITIALIZE, "loaded"),
        ("cuCtxPushCurrent_v2", INITIALIZE, "loaded"),
        ("cuKernelGetFunction", INITIALIZE, "loaded"),
    ],
)
def test_an_error_of_the_driver_is_reported(
    case: tuple[FakeDriver, Call], function: str, stage: int, what: str, code: int, kind: int,
    told: str,
) -> None:  # fmt: skip
    library, call = case
    library.failing = {function: code}
    xla = FakeXla()
    assert call(xla.frame(*arrays(12), stage=stage)) == 0xE1
    text = f"jaxmech: a GPU kernel for 12 trajectories could not be {what}: "
    assert xla.errors == [(text + told + OTHERWISE, kind)]
    assert library.contexts == []


def test_two_threads_for_two_devices_at_once(case: tuple[FakeDriver, Call]) -> None:
    library, call = case
    library.during_launch = Barrier(2, timeout=60).wait  # both are within a call
    frames = [(device, arrays(100 * device), FakeXla()) for device in (1, 2)]
    threads = [
        Thread(target=call, args=(xla.frame(*both, device=device),)) for device, both, xla in frames
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = {launch.stream: launch for launch in library.launches}
    assert found.keys() == {1000, 2000}
    for device, (given, results), _ in frames:
        launch = found[1000 * device]
        assert (launch.size, launch.grid[0]) == (100 * device, 2 * device)
        assert launch.pointers == tuple(x.ctypes.data for x in (*given, *results))


def test_the_driver_compiles_for_the_devices_in_use() -> None:
    library = FakeDriver(capabilities=(90, 75, 90), active=(0, 2))
    assert Driver(library).kernel("the text", "entry") == KERNEL
    assert library.loaded == [b"the text"]
    functions = [told for what, told in library.called if what == "function"]
    assert functions == [(0x1000, KERNEL), (0x1002, KERNEL)]
    held = [told for what, told in library.called if what in ("retain", "release")]
    assert held == [0, 0, 2, 2]
    assert library.contexts == []
    assert ("kernel", b"entry") in library.called
    assert Driver(library).capabilities() == [90, 75, 90]


@pytest.mark.parametrize("function", ["cuLibraryLoadData", "cuKernelGetFunction"])
def test_a_refused_kernel_says_why_and_what_to_do(function: str) -> None:
    """A kernel is refused when it is loaded, or when it is compiled for a device."""
    library = FakeDriver(failing={function: UNSUPPORTED_PTX}, log=b"ptxas fatal: version 9.9")
    with pytest.raises(CudaError) as error:
        Driver(library).kernel("the text", "entry")
    text = str(error.value)
    assert "a kernel cannot be compiled" in text
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (error 222: the provided PTX" in text
    assert "; update NVIDIA's driver\nptxas fatal: version 9.9\n" in text
    assert text.endswith(OTHERWISE)
    assert library.contexts == []


def test_a_kernel_is_loaded_and_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of several threads loads the kernel, and the others do not."""
    library, registered = FakeDriver(arrays=2), list[tuple[Any, ...]]()
    cuda = Driver(library)
    monkeypatch.setattr(runtime, "driver", lambda: cuda)
    monkeypatch.setattr(runtime, "_LOADED", runtime._Loaded())
    monkeypatch.setattr(
        jax.ffi, "register_ffi_target", lambda *args, **rest: registered.append((*args, rest))
    )
    args = "jaxmech_once", "the text", 1, 1
    threads = [Thread(target=runtime.load, args=args) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert library.loaded == [b"the text"]
    ((name, stages, rest),) = registered
    assert (name, rest) == ("jaxmech_once", {"platform": "CUDA"})
    assert stages.keys() == {"initialize", "execute"}


def test_without_a_driver_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **rest: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(runtime, "driver", lambda: None)
    monkeypatch.setattr(jax.ffi, "register_ffi_target", refused)
    runtime.load("jaxmech_none", "the text", 1, 1)
