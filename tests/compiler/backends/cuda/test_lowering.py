"""Programs for an NVIDIA GPU, lowered on a machine without one."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech import FixedSteps, models, simulate
from jaxmech.compiler import NativeCodeWarning, batched, explain, off, platforms, vectorize, why_not
from jaxmech.compiler.backends import cuda as program
from jaxmech.compiler.backends.cuda import CudaError, Driver
from jaxmech.compiler.ir.loops import UnsupportedError
from tests.compiler.backends.cuda.fake_driver import FakeDriver

STEPS = 20
MAKE = {"vectorize": vectorize, "batched": lambda fn: jax.vmap(batched(fn))}


def fn(x: Any) -> Any:
    """A loop."""
    return lax.fori_loop(0, STEPS, lambda _, y: jnp.sin(y) + x, x)


def batch(size: int = 5) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(size, 3)))


class Machine:
    """A machine with a driver that records, and the registrations with XLA."""

    def __init__(self, library: FakeDriver) -> None:
        self.library, self.cuda = library, Driver(library)
        self.registered = dict[str, Any]()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with fresh():
        yield machine_with(monkeypatch, FakeDriver())


def machine_with(monkeypatch: pytest.MonkeyPatch, library: FakeDriver) -> Machine:
    found = Machine(library)
    register = jax.ffi.register_ffi_target

    def registered(name: str, stages: Any, *, platform: str) -> None:
        if platform == "CUDA":
            found.registered[name] = stages
        else:
            register(name, stages, platform=platform)

    monkeypatch.setattr(program, "driver", lambda: found.cuda)
    monkeypatch.setattr(program, "_LOADED", program._Loaded())
    monkeypatch.setattr(jax.ffi, "register_ffi_target", registered)
    return found


@contextmanager
def fresh() -> Iterator[None]:
    """Clear the traces and look-ups of a test."""
    clear = jax.clear_caches, program._target.cache_clear
    for one in clear:
        one()
    yield
    for one in clear:
        one()


def lowered(run: Callable[..., Any], *args: Any, platform: str = "cuda") -> str:
    return jax.jit(run).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def calls(text: str) -> list[str]:
    """The foreign functions of a program that are ours."""
    return re.findall(r"stablehlo\.custom_call @(jaxmech_\w+)", text)


@pytest.mark.parametrize("make", MAKE)
def test_one_call_of_a_kernel_that_is_loaded(make: str, machine: Machine) -> None:
    (name,) = calls(lowered(MAKE[make](fn), batch()))
    assert machine.registered.keys() == {name}
    assert ("kernel", name.encode()) in machine.library.called
    assert len(machine.library.loaded) == 1


def test_what_the_call_takes_and_gives(machine: Machine) -> None:
    """The arguments in order, and the results that hold numbers, with their usual layouts."""
    x, shared = batch(), jnp.ones(3)

    def short(x: Any, shared: Any) -> Any:
        y = jnp.sin(x * shared)
        return y, y.sum() > 0, x[:0]

    text = lowered(vectorize(short, (0, None)), x, shared)
    (line,) = [line for line in text.splitlines() if "@jaxmech_" in line]
    assert "(tensor<5x3xf64>, tensor<3xf64>) -> (tensor<5x3xf64>, tensor<5xi1>)" in line
    layout = "dense<[1, 0]> : tensor<2xindex>"
    assert f"operand_layouts = [{layout}, dense<0> : tensor<1xindex>]" in line
    assert f"result_layouts = [{layout}, dense<0> : tensor<1xindex>]" in line


def test_a_trajectory_by_itself_is_a_batch_of_one(machine: Machine) -> None:
    text = lowered(batched(fn), batch()[0])
    assert len(calls(text)) == 1
    assert re.search(r"custom_call @jaxmech_.*\(tensor<1x3xf64>\) ->", text)


def test_the_kernel_is_the_same_for_all_sizes(machine: Machine) -> None:
    run = vectorize(fn)
    names = [calls(lowered(run, batch(size))) for size in (1, 5, 1000)]
    assert names[0] == names[1] == names[2]
    assert len(machine.library.loaded) == 1
    assert calls(lowered(run, batch(0))) == []


def test_one_trace_for_both_platforms(machine: Machine) -> None:
    """A trace lowered for both platforms does not mix their kernels."""
    trace = jax.jit(jax.vmap(batched(fn))).trace(batch())
    names = {
        (platform, *calls(trace.lower(lowering_platforms=(platform,)).as_text()))
        for platform in ("cuda", "cpu", "cuda", "cpu")
    }
    (cpu, on_cpu), (cuda, on_cuda) = sorted(names)
    assert (cpu, cuda) == ("cpu", "cuda")
    assert on_cpu != on_cuda
    assert machine.registered.keys() == {on_cuda}
    mine, plain = jax.vmap(batched(fn))(batch()), jax.vmap(fn)(batch())
    np.testing.assert_allclose(mine, plain, rtol=1e-12)  # a CPU runs the kernel of the CPU


@pytest.mark.parametrize("make", MAKE)
def test_derivatives_and_nested_batches(make: str, machine: Machine) -> None:
    def slope(x: Any) -> Any:
        return jax.grad(lambda x: fn(x).sum())(x)

    assert len(calls(lowered(MAKE[make](slope), batch()))) == 1  # there and back, in short loops
    nested = batch(6).reshape(2, 3, 3)
    text = lowered(jax.vmap(MAKE[make](fn)), nested)
    assert "(tensor<6x3xf64>) ->" in text


@pytest.mark.parametrize("make", MAKE)
def test_plain_vmap_where_the_gpu_lacks_something(
    make: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*args: Any, **rest: Any) -> Any:
        raise UnsupportedError("so much memory")

    monkeypatch.setattr(program, "module", made)
    with pytest.warns(NativeCodeWarning, match="because of so much memory"):
        text = lowered(MAKE[make](fn), batch())
    assert calls(text) == []
    assert "stablehlo.while" in text
    assert machine.registered == {}


def test_explain_names_what_the_gpu_lacks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(*args: Any, **rest: Any) -> Any:
        raise UnsupportedError("so much memory")

    with platforms.lowered_for("cuda"):
        assert "plain vmap" not in repr(explain(fn, batch()))
        assert why_not() is None
        monkeypatch.setattr(program, "module", made)
        assert "plain vmap, because of so much memory" in repr(explain(fn, batch()))
        with off():
            assert "`compiler.off()`" in repr(explain(fn, batch()))


def test_the_target_is_the_oldest_device_in_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for capabilities, target in (((90, 120), "sm_75"), ((90, 70), "sm_70"), ((), "sm_75")):
        with fresh(), monkeypatch.context() as patch:
            found = machine_with(patch, FakeDriver(capabilities=capabilities, active=()))
            made, generate = list[str](), program.ptx

            def recorded(text: str, target: str, made: Any = made, generate: Any = generate) -> Any:
                made.append(target)
                return generate(text, target)

            patch.setattr(program, "ptx", recorded)
            assert len(calls(lowered(vectorize(fn), batch()))) == 1
            assert len(found.library.loaded) == 1
            assert made == [target]


def test_a_refused_kernel_stops_the_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh():
        machine_with(monkeypatch, FakeDriver(failing={"cuLibraryLoadData": 222}))
        with pytest.raises(CudaError, match="CUDA_ERROR_UNSUPPORTED_PTX_VERSION"):
            lowered(vectorize(fn), batch())


def test_too_many_trajectories_are_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = jax.ShapeDtypeStruct((2**31, 3), float)
    with pytest.raises(ValueError, match="at most 2,147,483,647 trajectories, but has 2,147,483,6"):
        lowered(vectorize(fn), many)
    assert program.LARGEST == 2**31 - 1
    assert machine.registered == {}


def test_a_kernel_is_kept_on_disk(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later process loads it without generating it."""
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", str(tmp_path / "kernels"))
    names = calls(lowered(vectorize(fn), batch()))
    (text,) = machine.library.loaded

    def made(*args: Any, **rest: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(program, "module", made)
    monkeypatch.setattr(program, "_LOADED", program._Loaded())
    assert calls(lowered(vectorize(fn), batch())) == names
    assert machine.library.loaded == [text, text]
    assert len(list((tmp_path / "kernels").iterdir())) == 1


@pytest.mark.slow
def test_a_rollout_is_one_kernel_beside_that_of_its_energies(machine: Machine) -> None:
    """The rollout with projection and audit has no other loop; its gradient is two kernels."""
    model = models.pendulum()
    q, v = model.initial()
    ts = jnp.linspace(0.0, 0.1, 3)

    def rollout(v: Any, params: Any) -> Any:
        return simulate(model.system, q, v, ts, params, steps=FixedSteps(per_save=4))

    def loss(v: Any, params: Any) -> Any:
        return rollout(v, params).q[-1].sum()

    args = jnp.stack([v] * 5), model.params
    for fn, count in ((rollout, 2), (jax.grad(loss, (0, 1)), 2)):
        text = lowered(jax.vmap(fn, (0, None)), *args)
        assert len(calls(text)) == text.count("custom_call") == count
        assert "stablehlo.while" not in text
