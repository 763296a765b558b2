"""Systems sent to other processes, and what a fresh process does."""

import copy
import gc
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, Holonomic, System, models, parts, simulate
from jaxmech.compiler.backends import cpu as program
from jaxmech.integrate import DormandPrince5


def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1]


def rod(q: Any, t: Any, p: Any) -> Any:
    return (q @ q - p["l"] ** 2) / 2


PENDULUM = System(lagrangian, [Holonomic(rod)], coordinates=("x", "y"))


def end(system: System) -> list[float]:
    """The final state of a short swing."""
    with jax.enable_x64(True):
        params = {"m": 1.0, "l": 1.0, "g": 9.81}
        ts = jnp.linspace(0.0, 0.1, 3)
        sol = simulate(
            system, [1.0, 0.0], [0.0, 0.0], ts, params, method=DormandPrince5(), steps=FixedSteps(1)
        )
        return sol.q[-1].tolist()


def hanging() -> System:
    body = parts.planar_body("bar", mass="m", inertia="I")
    joint = parts.revolute("A", parts.ground, (0, 0), body, (-0.5, 0))
    params = {"m": 1.0, "I": 0.1, "g": 9.81}
    return parts.Mechanism([body], [joint], [parts.gravity("g")], params).system


@pytest.mark.parametrize("name", models.CATALOGUE)
def test_models_come_back_as_the_same_system(name: str) -> None:
    system = models.make(name, {}).system
    assert pickle.loads(pickle.dumps(system)) == system


def test_a_system_of_parts_comes_back() -> None:
    system = hanging()
    assert pickle.loads(pickle.dumps(system)) == system


def test_another_process_computes_the_same_after_use() -> None:
    here = end(PENDULUM)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(end, (PENDULUM,))
    np.testing.assert_array_equal(there, here)


def test_what_is_not_importable_is_named() -> None:
    system = System(lambda q, v, t, p: v @ v, coordinates=("x", "y"))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(system)
    assert copy.deepcopy(system) is system


FRESH = """
import sys, jaxmech as jm
late = ("jaxmech.analysis", "jaxmech.identify", "jaxmech.ensemble", "matplotlib", "zarr")
assert not [name for name in late if name in sys.modules]
assert jm.fit is jm.identify.fit and jm.analysis.structure and callable(jm.view)
assert {"jaxmech.analysis", "jaxmech.identify"} <= sys.modules.keys()

import jax
jax.config.update("jax_enable_x64", True)
from tests.test_processes import in_a_fresh_process
in_a_fresh_process()
"""


def batch_of(stiffness: float) -> Any:
    """Ends of nine motions of a system that no other call has."""
    system = System(lambda q, v, t, p: v @ v / 2 - stiffness * q @ q, coordinates=("x",))
    ts, starts = jnp.linspace(0.0, 0.1, 2), jnp.linspace(0.1, 1.0, 9)[:, None]
    return jax.vmap(lambda q: simulate(system, q, q, ts, steps=FixedSteps(1)).q[-1])(starts)


def resident() -> float:
    """Megabytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def in_a_fresh_process() -> None:
    """Print, as lines of JSON, what `test_a_fresh_process` expects."""
    compiled, compile_module = [], program.compile_module

    def noted(*module: Any) -> bytes:
        compiled.append(module)
        return compile_module(*module)

    program.compile_module = noted
    print(json.dumps([np.asarray(batch_of(3.217)).tolist(), len(compiled)]), flush=True)

    gc.collect()
    before = resident()
    for k in range(1, 80):
        batch_of(1.0 + k)
    gc.collect()
    print(json.dumps([resident() - before, len(compiled)]), flush=True)

    @jax.jit
    @jax.vmap
    def factors(m: Any) -> Any:
        s = m @ m.T + jnp.eye(m.shape[0])
        lu = jnp.linalg.solve(s, m[0])
        return jnp.linalg.svd(m), jnp.linalg.eigh(s), jnp.linalg.cholesky(s), lu

    m = np.random.default_rng(7).normal(size=(2048, 10, 10))
    for _ in range(20):
        cholesky = jax.block_until_ready(factors(m))[2]
    s = m @ m.transpose(0, 2, 1) + np.eye(10)
    np.testing.assert_allclose(cholesky @ cholesky.transpose(0, 2, 1), s, atol=1e-10)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It imports late, finds native code on disk, does not grow, and finishes calls of LAPACK.

    The last: jaxlib 0.10.0 to 0.11.0 hangs at 0 % CPU in two batched calls in one program, within
    the first ten calls on two cores.
    """
    monkeypatch.setenv("JAXMECH_KERNEL_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(program, "is_loaded", lambda name: False)
    here = np.asarray(batch_of(3.217)).tolist()
    assert list((tmp_path / "kernels").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", FRESH],
        cwd=Path(__file__).parents[1], env=os.environ | {"JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    motion, growth = map(json.loads, done.stdout.splitlines())
    assert motion == [here, 0]  # found on disk, with the same bits
    megabytes, compiled = growth
    assert compiled >= 79  # of the other systems none was stored
    assert megabytes < 350
