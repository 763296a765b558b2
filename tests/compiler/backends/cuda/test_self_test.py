"""The self-test of a GPU, with the CPU in its place: verdicts, their storage, and what follows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxmech.compiler import NativeCodeWarning, batched
from jaxmech.compiler.backends import disk_cache, self_test
from jaxmech.compiler.backends.cuda import CudaError
from jaxmech.compiler.backends.primitive import over_batch
from jaxmech.compiler.backends.self_test import compared, require_passed, verdict_on
from jaxmech.compiler.ir.loops import UnsupportedError

CPU = jax.devices("cpu")[0]


@pytest.fixture(autouse=True)
def _new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdicts in memory or on disk."""
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(self_test, "_TESTS", self_test._Tests())


def altered(change: Callable[[list[Any]], list[Any]]) -> Any:
    """Kernels with other results."""
    return lambda *args: change(over_batch(*args))


def refused(*args: Any) -> Any:
    raise CudaError("NVIDIA's driver: a kernel cannot be compiled.\nptxas: line 5")


def unexpected(*args: Any) -> Any:
    raise AssertionError("tested again")


def test_right_kernels_pass_also_while_another_program_is_traced() -> None:
    verdicts = []

    def traced(x: Any) -> Any:
        verdicts.append(compared(CPU, over_batch))
        return x

    jax.jit(traced)(1.0)
    assert verdicts[0].passed
    assert "agrees with plain `jax.vmap` within" in verdicts[0].text


@pytest.mark.parametrize(
    "change",
    [
        lambda outs: [outs[0].at[3, 1].multiply(1.001), *outs[1:]],
        lambda outs: [outs[0].at[66, 2].set(np.nan), *outs[1:]],
        lambda outs: [outs[0].at[5].set(0.0), *outs[1:]],
        lambda outs: [*outs[:2], outs[2].at[0].add(1), outs[3]],
    ],
)
def test_kernels_with_one_wrong_number_fail(change: Any) -> None:
    verdict = compared(CPU, altered(change))
    assert not verdict.passed
    assert "in float32 they differ from plain `jax.vmap` on the cpu" in verdict.text


def test_a_verdict_is_made_once_and_kept_for_the_same_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = verdict_on(CPU, over_batch)
    assert first.passed
    assert verdict_on(CPU, unexpected) == first
    monkeypatch.setattr(self_test, "_TESTS", self_test._Tests())  # the next process
    assert verdict_on(CPU, unexpected) == first
    monkeypatch.setattr(self_test, "version", lambda package: "another release")
    wrong = altered(lambda outs: [outs[0] + 1, *outs[1:]])
    assert not verdict_on(CPU, wrong).passed


def test_a_wrong_result_is_kept_and_a_test_that_could_not_start_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = verdict_on(CPU, refused)
    assert not verdict.passed
    assert verdict.text == (
        "it could not run: CudaError: NVIDIA's driver: a kernel cannot be compiled."
    )
    assert verdict_on(CPU, unexpected) == verdict
    monkeypatch.setattr(self_test, "_TESTS", self_test._Tests())
    wrong = verdict_on(CPU, altered(lambda outs: [outs[0] + 1, *outs[1:]]))
    assert "differ" in wrong.text
    monkeypatch.setattr(self_test, "_TESTS", self_test._Tests())
    assert verdict_on(CPU, unexpected) == wrong
    (file,) = disk_cache.cache_folder().iterdir()  # type: ignore[union-attr]
    assert b'"passed": false' in file.read_bytes()
    assert json.loads(file.read_bytes()[32:])["text"] == wrong.text


def test_kernels_are_required_to_pass_only_where_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_passed(unexpected)
    monkeypatch.setattr(self_test, "gpu", lambda: CPU)
    with pytest.raises(UnsupportedError, match="the self-test of GPU kernels: it could not run"):
        require_passed(refused)


def test_a_batch_on_a_gpu_that_fails_runs_as_plain_vmap_with_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program for a GPU is lowered here, where it cannot run."""
    monkeypatch.setattr(self_test, "gpu", lambda: CPU)
    monkeypatch.setattr(self_test, "compared", refused)

    def fn(x: Any) -> Any:
        return jax.vmap(batched(lambda x: lax.fori_loop(0, 9, lambda _, y: jnp.sin(y) + x, x)))(x)

    lowered = jax.jit(fn).trace(np.ones((4, 3))).lower
    with pytest.warns(NativeCodeWarning, match="the self-test of GPU kernels: it could not run"):
        text = lowered(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in text
    assert "stablehlo.sine" in text
