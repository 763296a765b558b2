"""Digests of functions: equal in every process, and different after every relevant change."""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import Holonomic, System, Unilateral, models
from jaxmech.ensemble.plan import system_digest
from jaxmech.utils.digests import traced_digest
from tests.parts.mechanisms import parallel_four_bar
from tests.small import CASES, MIXED

ROOT = Path(__file__).resolve().parents[2]
ALL = """
import json, jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
from tests.ensemble.test_digest import everything
print(json.dumps(everything()))
"""


@jax.custom_jvp
def smooth(x):
    return jnp.where(x > 0, x, 0.0)


smooth.defjvp(lambda given, along: (smooth(given[0]), along[0] * jax.nn.sigmoid(given[0])))
TABLE = jnp.arange(5.0)


@jax.jit
def looked_up(x):
    return jnp.interp(smooth(x), TABLE, TABLE**2)


def winding(q, v, t, p):
    """A Lagrangian that uses every construct with a name or an address in a jaxpr."""
    total = jax.lax.fori_loop(0, 9, lambda i, s: s + jax.nn.softplus(q[0] * i), 0.0)
    return v @ v + looked_up(q[0]) + total + jax.lax.cond(t > 0, jnp.sin, jnp.cos, p["m"])


def everything():
    models_ = {name: models.make(name) for name in models.CATALOGUE}
    found = {name: system_digest(m.system, m.params) for name, m in models_.items()}
    mechanism = parallel_four_bar()[0]
    found["parts"] = system_digest(mechanism.system, mechanism.params)
    bent = replace(CASES["oscillator"].system, lagrangian=winding)
    return found | {"winding": system_digest(bent, {"m": 1.0})}


def test_digests_are_the_same_in_another_process() -> None:
    here = everything()
    done = subprocess.run(
        [sys.executable, "-c", ALL],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "17"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == here
    assert len({*here.values()}) == len(here)


def test_every_function_of_a_system_counts() -> None:
    system, params = MIXED.system, MIXED.params
    then = system_digest(system, params)
    servo, road, blade = system.constraints

    def doubled(fn):
        return lambda *given: 2 * fn(*given)

    for change in (
        {"force": doubled(system.force)},
        {"force": None},
        {"lagrangian": doubled(system.lagrangian)},
        {"coordinates": ("x", "z", "y", "phi", "wheel")},
        {"nonideal": lambda q, v, forces, t, p: -v * forces[0]},
        # a constant that its rows do not show
        {"constraints": (servo, Holonomic(lambda *x: road.fn(*x) + 1.0, "road"), blade)},
        {"constraints": (servo, road)},
    ):
        assert system_digest(replace(system, **change), params) != then, change
    assert system_digest(replace(system, force=partial(system.force)), params) == then


def test_gaps_and_their_impacts_count() -> None:
    def gap(q: Any, t: Any, p: Any) -> Any:
        return q[-1] - p["floor"]

    def code(**changes: Any) -> str:
        floor = replace(Unilateral(gap, restitution=0.5, name="floor"), **changes)
        system = System(lambda q, v, t, p: v @ v, [floor], coordinates=("y",))
        return system_digest(system, {"floor": 1.0, "e": 0.5})

    changes: list[dict[str, Any]] = [
        {"gap": lambda q, t, p: 2 * gap(q, t, p)},
        {"restitution": 0.4},
        {"restitution": lambda p: p["e"]},
        {"rest_speed": 0.1},
    ]
    assert len({code(), *(code(**change) for change in changes)}) == 5
    assert code(name="floor", gap=gap) == code()


def test_constants_count_and_names_do_not() -> None:
    x = jnp.ones(3)

    def with_table(table):
        return lambda x: x * table

    same = traced_digest(with_table(np.arange(3.0)), x)
    assert traced_digest(with_table(jnp.arange(3.0)), 5 * x) == same
    assert traced_digest(with_table(np.arange(3.0) + 1e-12), x) != same


@pytest.mark.parametrize(("text", "same"), [("x * 2", True), ("x * 3", False)])
def test_digests_of_untraced_functions_include_their_file(tmp_path, text: str, same: bool) -> None:
    def loaded(name: str, text: str):
        path = tmp_path / name
        path.write_text(f"def fn(x):\n    return {text}\n")
        spec = importlib.util.spec_from_file_location("called_back", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return lambda x: jax.pure_callback(module.fn, jax.ShapeDtypeStruct((), float), x)

    first, second = loaded("a.py", "x * 2"), loaded("b.py", text)
    assert (traced_digest(first, 1.0) == traced_digest(second, 1.0)) is same
