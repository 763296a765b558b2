"""Arguments of every kind have the right result, or an error with the remedy."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from jaxmech import FixedSteps, acceleration, assemble, simulate
from jaxmech.analysis import structure
from tests.quick import quick
from tests.small import PENDULUM

TS = np.linspace(0.0, 0.3, 4)
SYSTEM, PARAMS, Q, V = PENDULUM

VERBS: dict[str, Callable[..., Any]] = {
    "simulate": lambda q=Q, v=V, t=TS, p=PARAMS: (
        simulate(SYSTEM, q, v, t, p, steps=FixedSteps(1)).q
    ),
    "assemble": lambda q=Q, v=V, t=0.0, p=PARAMS: assemble(SYSTEM, q, v, t, p)[0],
    "acceleration": lambda q=Q, v=V, t=0.0, p=PARAMS: acceleration(SYSTEM, q, v, t, p).qdd,
    "equations": lambda q=Q, v=V, t=0.0, p=PARAMS: SYSTEM.equations(q, v, t, p).b,
    "structure": lambda q=Q, v=V, t=0.0, p=PARAMS: structure(SYSTEM, q, v, t, p),
}
BAD: dict[str, tuple[Any, str]] = {
    "float16": (np.float16([1.2, -1.6]), "in float16.*astype"),
    "bfloat16": (jnp.array([1.2, -1.6], jnp.bfloat16), "in bfloat16.*astype"),
    "object": (np.array([1.2, -1.6], object), "holds Python objects"),
    "complex": (np.array([1.2, -1.6j]), "in complex128"),
    "text": (np.array(["a", "b"]), "real numbers, but is"),
    "ragged": ([[1.0], [1.0, 2.0]], "different lengths"),
    "nothing": (None, "but is None"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", BAD)
def test_invalid_states_are_named(verb: str, kind: str) -> None:
    value, message = BAD[kind]
    with pytest.raises(TypeError, match=rf"^Argument `q\w*` must .*{message}"):
        VERBS[verb](q=value)
    with pytest.raises(TypeError, match=rf"^Argument `v\w*` must .*{message}"):
        VERBS[verb](v=value)


@pytest.mark.parametrize("kind", ["object", "complex", "text", "nothing"])
def test_invalid_times_and_parameters_are_named(kind: str) -> None:
    value, message = BAD[kind]
    with pytest.raises(TypeError, match=f"^Argument `ts` must .*{message}"):
        VERBS["simulate"](t=value)
    with pytest.raises(TypeError, match=f"^Argument `t` must .*{message}"):
        VERBS["acceleration"](t=value)
    if value is not None:
        with pytest.raises(TypeError, match=rf"^Argument `params\['m'\]` must .*{message}"):
            VERBS["simulate"](p={**PARAMS, "m": value})


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_parameter_names_its_reader(verb: str) -> None:
    for missing, who in (("g", "`lagrangian`"), ("l", "constraint 'rod'")):
        some = {name: x for name, x in PARAMS.items() if name != missing}
        with pytest.raises(ValueError, match=f"must hold '{missing}', which {who} reads, but"):
            VERBS[verb](p=some)
    with pytest.raises(ValueError, match="reads, but is None"):
        VERBS[verb](p=None)


def test_the_other_byte_order() -> None:
    swapped = [np.asarray(x, ">f8") for x in (Q, V, TS)]
    params = {name: np.asarray(x, ">f8") for name, x in PARAMS.items()}
    np.testing.assert_array_equal(VERBS["simulate"](*swapped, params), VERBS["simulate"]())


@pytest.mark.slow
def test_strict_promotion() -> None:
    """JAX does not reuse programs compiled under the other setting."""
    verbs = {name: quick(VERBS[name]) for name in ("assemble", "acceleration", "equations")}
    verbs["simulate"] = quick(jax.value_and_grad(lambda q, v: VERBS["simulate"](q, v).sum()))
    expected = {name: verb(Q, V) for name, verb in verbs.items()}
    with jax.numpy_dtype_promotion("strict"):
        for name, verb in verbs.items():
            jax.tree.map(np.testing.assert_array_equal, verb(Q, V), expected[name])


@pytest.mark.slow
def test_without_jit() -> None:
    """`jax.disable_jit`: alone, over a batch, and the gradient."""

    def end(q: Any) -> Any:
        return simulate(SYSTEM, q, V, [0.0, 0.02], PARAMS).q[-1].sum()  # its steps are chosen

    expected, slope = end(Q), jax.grad(end)(Q)
    with jax.disable_jit():
        np.testing.assert_allclose(end(Q), expected, rtol=1e-13)
        np.testing.assert_allclose(jax.vmap(end)(np.stack([Q, Q])), [expected] * 2, rtol=1e-13)
        np.testing.assert_allclose(jax.grad(end)(Q), slope, rtol=1e-12)


@pytest.mark.slow
def test_empty_batches() -> None:
    none = np.zeros((0, 2))
    for name in ("simulate", "assemble", "acceleration"):
        found = quick(jax.vmap(VERBS[name]))(none, none)
        assert found.shape == ((0, 4, 2) if name == "simulate" else (0, 2))
    assert jax.vmap(lambda q: simulate(SYSTEM, q, V, TS, PARAMS).q)(none).shape == (0, 4, 2)
    total = jax.grad(
        lambda g: jax.vmap(lambda q: VERBS["simulate"](q, p={**PARAMS, "g": g}))(none).sum()
    )
    assert total(9.81) == 0.0


def test_batches_of_symbolic_size_are_refused() -> None:
    """Native code is written for a batch of known size."""
    (size,) = export.symbolic_shape("size")
    states = jax.ShapeDtypeStruct((size, 2), float)
    with pytest.raises(ValueError, match="must have a known size, but has size; give"):
        export.export(jax.jit(jax.vmap(VERBS["simulate"])))(states)


@pytest.mark.slow
def test_shard_map() -> None:
    """A batch over several devices, and the gradient by shared parameters, both as lanes."""
    program = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec
jax.config.update("jax_enable_x64", True)
from jaxmech import FixedSteps, simulate
from tests.small import PENDULUM
mesh, split = Mesh(jax.devices(), ("batch",)), PartitionSpec("batch")
def run(speeds, params):
    def end(speed):
        v = speed * PENDULUM.v
        ts = np.linspace(0, 0.3, 4)
        return simulate(PENDULUM.system, PENDULUM.q, v, ts, params, steps=FixedSteps(1)).q[-1]
    return jax.vmap(end)(speeds)
def parts(speeds, params):
    specs = split, PartitionSpec()
    return jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=split)(speeds, params)
speeds, params = jnp.linspace(0.5, 1.0, 6), {k: jnp.asarray(x) for k, x in PENDULUM.params.items()}
whole = jax.jit(parts)(speeds, params)
assert len(whole.sharding.device_set) == 2
np.testing.assert_array_equal(whole, jax.jit(run)(speeds, params))
slopes = [jax.jit(jax.grad(lambda p: fn(speeds, p).sum()))(params) for fn in (parts, run)]
for name in params:
    np.testing.assert_allclose(slopes[0][name], slopes[1][name], rtol=1e-12, atol=1e-14)
assert abs(slopes[0]["l"]) > 0.1
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
