"""The disk cache of native code: damage, size limit, switching off."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.compiler import vectorize
from jaxmech.compiler.backends import cpu as program
from jaxmech.compiler.backends import disk_cache
from jaxmech.compiler.backends.cpu import Kind, Program
from jaxmech.compiler.frontend.build import Kernel, function_kernel
from jaxmech.compiler.ir.loops import UnsupportedError


def kernel(factor: float, dtype: type = np.float64) -> Kernel:
    x = jnp.ones(3, dtype)
    return function_kernel(jax.make_jaxpr(lambda x: jnp.sin(x * jnp.asarray(factor, x.dtype)))(x))


def code(of: Kernel, batched: frozenset[int] = frozenset({0}), kind: Kind = Kind.LARGE) -> Program:
    return Program(of, batched, kind)


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that this process has loaded, here or in other tests, would not be stored again."""
    monkeypatch.setattr(program, "is_loaded", lambda name: False)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_what_is_stored_is_what_was_generated(place: Path) -> None:
    new = code(kernel(1.5))
    name, facts = new.registered_name(), new.facts
    del new  # a program in use would share its graph
    found = code(kernel(1.5))
    assert found.facts == facts
    assert found.registered_name() == name
    assert "safe" not in vars(found.kernel.reading)  # the graph was never built


def test_other_code_has_another_key(place: Path) -> None:
    programs = [
        code(kernel(2.0)),
        code(kernel(2.5)),
        code(kernel(2.0, np.float32)),
        code(kernel(2.0), batched=frozenset()),
        code(kernel(2.0), kind=Kind.ONE),
        code(kernel(2.0), kind=Kind.SMALL),
        code(kernel(2.0).with_results([False])),
    ]
    for number, one in enumerate(programs, start=1):
        one.registered_name()
        assert len(list(place.iterdir())) == number


def test_code_of_another_compiler_is_not_found(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code(kernel(3.0)).registered_name()
    (entry,) = place.iterdir()
    monkeypatch.setattr(disk_cache, "environment", lambda: "newer")
    newer = code(kernel(3.0))
    newer.require_supported()
    assert "safe" in vars(newer.kernel.reading)  # generated again
    assert list(place.iterdir()) == [entry]


def test_damage_is_detected_and_repaired(place: Path) -> None:
    x = jnp.linspace(0.0, 1.0, 15).reshape(5, 3)
    code(kernel(3.5)).registered_name()
    (entry,) = place.iterdir()
    whole = entry.read_bytes()
    for k in (0, 40, len(whole) // 2, len(whole) - 1):
        entry.write_bytes(whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :])
        assert disk_cache.load(entry.name) is None
    entry.write_bytes(whole[: len(whole) // 2])
    assert disk_cache.load(entry.name) is None
    again = code(kernel(3.5))
    again.require_supported()
    assert "safe" in vars(again.kernel.reading)  # generated again
    found = vectorize(lambda x: jnp.sin(x * jnp.asarray(3.5)))(x)
    np.testing.assert_allclose(found, jnp.sin(3.5 * x), rtol=1e-14)


def test_a_function_that_cannot_be_compiled_is_remembered(place: Path) -> None:
    closed = jax.make_jaxpr(jnp.linalg.eigvalsh)(jnp.eye(3))
    reasons = []
    for _ in range(2):
        again = code(function_kernel(closed))
        with pytest.raises(UnsupportedError) as error:
            again.require_supported()
        reasons.append(str(error.value))
    assert reasons[0] == reasons[1]
    assert "safe" not in vars(again.kernel.reading)


def test_the_oldest_entries_go_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "LARGEST", 1000)
    for age, name in ((3, "old"), (2, "used"), (1, "young")):
        disk_cache.store(name, bytes(300))
        os.utime(place / name, (1e9 - age, 1e9 - age))
    assert disk_cache.load("used") == bytes(300)
    disk_cache.store("new", bytes(300))
    assert {entry.name for entry in place.iterdir()} == {"used", "young", "new"}


def test_a_folder_that_others_may_write_to_is_not_used(place: Path) -> None:
    disk_cache.store("entry", b"code")
    assert disk_cache.load("entry") == b"code"
    place.chmod(0o777)
    assert disk_cache.load("entry") is None
    disk_cache.store("other", b"code")
    assert not (place / "other").exists()


def test_a_file_that_others_may_have_written_is_not_loaded(place: Path) -> None:
    """The folder is closed, but may have been open before."""
    disk_cache.store("entry", b"code")
    assert (place / "entry").stat().st_mode & 0o777 == 0o600
    (place / "entry").chmod(0o666)
    assert disk_cache.load("entry") is None
    (place / "entry").chmod(0o600)
    assert disk_cache.load("entry") == b"code"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
@pytest.mark.parametrize("name", ["", "entry"])
def test_what_belongs_to_another_user_is_not_loaded(place: Path, name: str) -> None:
    disk_cache.store("entry", b"code")
    os.chown(place / name, 65534, 65534)
    assert disk_cache.load("entry") is None


@pytest.mark.parametrize("value", ["off", ""])
def test_the_cache_can_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", value)
    factor = 4.0 + len(value)
    code(kernel(factor)).registered_name()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("JAXMECH_KERNEL_CACHE")
    code(kernel(factor + 0.5)).registered_name()
    assert [entry.name for entry in (tmp_path / "jaxmech").iterdir()] == ["kernels"]


def test_a_folder_that_cannot_be_written_to_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", str(file / "kernels"))
    assert code(kernel(8.0)).registered_name().startswith("jaxmech_")
