"""`tune_cpu`: batches of trajectories on a tuned CPU give what they give without."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm

if sys.argv[1] == "tuned":
    jm.tune_cpu(2)
jax.config.update("jax_enable_x64", True)
model = jm.models.double_pendulum()
ts = jnp.linspace(0.0, 1.0, 11)
starts = jnp.linspace(-1.0, 1.0, 131)


def run(theta, params):
    q, v = model.state({**model.start, "theta1": theta}, params)
    q = jnp.where(theta > 0.99, 2.0 * q, q)  # the last ones are off their constraints
    return jm.simulate(model.system, q, v, ts, params, method=jm.RK4(10))


def height(params):
    return jax.vmap(run, (0, None))(starts[:100], params).q[:, -1, 3].sum()


params = {name: jnp.asarray(value) for name, value in model.params.items()}
sols = jax.jit(jax.vmap(run, (0, None)))(starts, params)
whole = jax.grad(height)(params)
each = jax.vmap(jax.grad(lambda start: run(start, params).q[-1, 3]))(starts)
arrays = {f"g_{k}": g for k, g in whole.items()}
arrays |= {k: getattr(sols, k) for k in ("q", "v", "status", "energy", "rank", "t_failed")}
np.savez(sys.argv[2], each=each, devices=len(jax.devices()), **arrays)
"""


def outcome(folder: Path, how: str) -> dict[str, np.ndarray]:
    flags = {"XLA_FLAGS", "JAX_NUM_CPU_DEVICES"}
    clean = {key: value for key, value in os.environ.items() if key not in flags}
    file = folder / f"{how}.npz"
    command = [sys.executable, "-c", PROGRAM, how, str(file)]
    done = subprocess.run(
        command, env=clean, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.slow
def test_tuned_and_not_tuned_agree(tmp_path: Path) -> None:
    tuned, plain = (outcome(tmp_path, how) for how in ("tuned", "plain"))
    assert (tuned.pop("devices"), plain.pop("devices")) == (2, 1)
    assert set(plain["status"]) == {0, 2}
    for name, expected in plain.items():
        if expected.dtype.kind == "i":
            np.testing.assert_array_equal(tuned[name], expected)
        else:
            tolerance = 1e-10 if name.startswith(("g_", "each")) else 1e-12
            scale = np.nanmax(np.abs(expected), initial=1.0)
            np.testing.assert_allclose(tuned[name], expected, rtol=0, atol=tolerance * scale)


def test_too_late_is_an_error() -> None:
    program = "import jax, jaxmech as jm; jax.numpy.ones(2) + 1; jm.tune_cpu()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "must precede the first computation" in done.stderr.splitlines()[-1]
