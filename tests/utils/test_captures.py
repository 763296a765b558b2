"""The key of what a function reads besides its arguments changes with it, and with nothing else."""

import pickle
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.utils.jit_cache import UNCHANGING, captures_of

Fn = Callable[[Any], Any]
Case = tuple[Fn, Callable[[float], Any]]  # a function that reads a number, and what sets it

STIFFNESS = 1.0
SETTINGS = types.ModuleType("settings")


def stiffness() -> float:
    return STIFFNESS


def set_stiffness(k: float) -> None:
    globals()["STIFFNESS"] = k


class Spring:
    scale = 1.0

    def __init__(self, k: Any = 1.0) -> None:
        self.k, self.name = k, "spring"

    def force(self, x: Any) -> Any:
        return self.k * x

    def scaled(self, x: Any) -> Any:
        return self.scale * x

    def by_method(self, x: Any) -> Any:
        return self.force(x)

    def by_property(self, x: Any) -> Any:
        return self.doubled * x

    @property
    def doubled(self) -> Any:
        return 2 * self.k

    def __call__(self, x: Any) -> Any:
        return self.force(x)


class Slotted:
    __slots__ = ("k",)

    def force(self, x: Any) -> Any:
        return self.k * x  # type: ignore[attr-defined]


@dataclass(eq=False)
class Record:
    k: float


def of_spring(method: str) -> Callable[[], Case]:
    def case() -> Case:
        spring = Spring()
        return getattr(spring, method), partial(setattr, spring, "k")

    return case


def of_global() -> Case:
    return lambda x: STIFFNESS * x, set_stiffness


def of_global_in_a_function() -> Case:
    return lambda x: stiffness() * x, set_stiffness


def of_module() -> Case:
    return lambda x: SETTINGS.k * x, partial(setattr, SETTINGS, "k")


def of_variable() -> Case:
    k = 1.0

    def change(value: float) -> None:
        nonlocal k
        k = value

    return lambda x: k * x, change


def of_array() -> Case:
    k = np.ones(2)
    return lambda x: k[1] * x, partial(k.__setitem__, 1)


def of_large_array() -> Case:
    k = np.ones(5000)
    return lambda x: k[1] * x, partial(k.__setitem__, 1)


def of_device_array() -> Case:
    spring = Spring(jnp.asarray(1.0))
    return spring.force, lambda k: setattr(spring, "k", jnp.asarray(k))


def of_list() -> Case:
    ks = [1.0]
    return lambda x: ks[0] * x, partial(ks.__setitem__, 0)


def of_nested_dictionary() -> Case:
    ks = {"a": {"b": 1.0}}
    return lambda x: ks["a"]["b"] * x, partial(ks["a"].__setitem__, "b")


def of_partial() -> Case:
    ks = {"k": 1.0}
    return partial(lambda ks, x: ks["k"] * x, ks), partial(ks.__setitem__, "k")


def of_default() -> Case:
    ks = np.ones(1)

    def force(x: Any, k: Any = ks) -> Any:
        return k[0] * x

    return force, partial(ks.__setitem__, 0)


def of_class() -> Case:
    class Soft(Spring):
        pass

    return Soft().scaled, partial(setattr, Soft, "scale")


def of_inherited() -> Case:
    spring = Spring()
    return spring.scaled, partial(setattr, spring, "scale")


def of_inner_object() -> Case:
    outer = types.SimpleNamespace(spring=Spring())
    return lambda x: outer.spring.k * x, partial(setattr, outer.spring, "k")


def of_getattr() -> Case:
    spring = Spring()
    return lambda x: getattr(spring, "".join("k")) * x, partial(setattr, spring, "k")


def of_slots() -> Case:
    slotted = Slotted()
    slotted.k = 1.0
    return slotted.force, partial(setattr, slotted, "k")


def of_dataclass() -> Case:
    record = Record(1.0)
    return lambda x: sum(vars(record).values()) * x, partial(setattr, record, "k")


def of_compiled() -> Case:
    spring = Spring()
    return jax.jit(lambda x: spring.k * x), partial(setattr, spring, "k")


CASES = {
    name: fn for name, fn in globals().items() if name.startswith("of_") and name[-6:] != "spring"
}
CASES |= {name: of_spring(name) for name in ("force", "by_method", "by_property", "__call__")}


@pytest.mark.parametrize("name", CASES)
def test_what_a_function_reads(name: str) -> None:
    fn, change = CASES[name]()
    change(1.0)
    captures, before = captures_of(fn), captures_of(fn).key()
    assert before is not None
    for value in (4.0, -1.0):
        change(value)
        assert captures.key() == captures_of(fn).key() != before
    change(1.0)
    assert captures.key() == captures_of(fn).key() == before


def test_equal_numbers_of_another_kind_differ() -> None:
    spring = Spring()
    keys = set()
    for k in (1, 1.0, True, 0.0, -0.0, np.float32(1.0), "1", b"1"):
        spring.k = k
        keys.add(captures_of(spring.force).key())
    assert len(keys) == 8


def test_what_no_function_reads_does_not_count() -> None:
    spring = Spring()
    before = captures_of(spring.force).key()
    spring.name, spring.results = "soft", [1.0]  # type: ignore[attr-defined]
    assert captures_of(spring.force).key() == before
    assert captures_of(lambda x: jnp.sin(x) * np.pi).key() is None
    assert captures_of((1.0, "name", None, np.float64(2.0))).key() is None


def test_an_object_within_itself() -> None:
    spring = Spring()
    spring.own = [spring]  # type: ignore[attr-defined]

    def force(x: Any) -> Any:
        return spring.own[0].k * force(x)  # type: ignore[attr-defined]

    before, spring.k = captures_of(force).key(), 2.0
    assert captures_of(force).key() != before


@dataclass(frozen=True)
class System:
    fn: Fn


def test_what_functions_write_is_no_input() -> None:
    """A count of calls; a change from outside counts."""
    calls = Record(0)
    counted = System(lambda x: calls.k * x)
    with UNCHANGING:
        before = captures_of(counted).key()
        calls.k = 1
        assert captures_of(counted).key() == before
    for _ in range(2):
        with UNCHANGING:
            assert captures_of(counted).key() == before
            calls.k += 1
    same = System(counted.fn)
    assert captures_of(same).key() == captures_of(counted).key() == before
    calls.k = 10
    assert captures_of(same).key() == captures_of(counted).key() != before


def test_an_object_is_pickled_without_its_captures() -> None:
    record = Record(1.0)
    captures_of(record).key()
    copy = pickle.loads(pickle.dumps(record))
    assert captures_of(copy).key() == captures_of(record).key()


def test_the_structure_of_a_tree_is_what_it_contains() -> None:
    """A fit has one for its parameters, and a second fit another, equal one."""
    spring = {"stiffness": 2.0}

    def force(structure: Any, x: float) -> float:
        return -spring["stiffness"] * x

    first, again, other = (
        captures_of(partial(force, jax.tree.structure({name: 0.0}))).key() for name in "mmc"
    )
    assert first == again
    assert first != other
