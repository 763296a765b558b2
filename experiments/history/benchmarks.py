"""What is timed in each commit: imports, first calls, batches, gradients, a fit.

The names of classes and methods are those that asv looks for.
"""

import os
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm

TS = np.linspace(0.0, 2.0, 201)
BATCH = 1024
MEASURED = """
import time
{setup}
start = time.process_time()
{measured}
print(time.process_time() - start)
"""
SYSTEM = """
import jax, numpy as np, jaxmech as jm
jax.config.update("jax_enable_x64", True)
model = jm.models.{model}()
q, v = (np.asarray(x) for x in model.initial())
"""
SIMULATED = """
jax.block_until_ready(jm.simulate(model.system, q, v, np.linspace(0, 1, 51), model.params))
"""


def cpu_seconds(setup: str, measured: str) -> float:
    """The CPU seconds of statements in a fresh process, without stored native code."""
    script = MEASURED.format(setup=setup, measured=measured)
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


class FirstCall:
    """CPU seconds before the first result."""

    unit = "CPU s"

    def track_import(self) -> float:
        """Time `import jaxmech`, without jax."""
        return cpu_seconds("import jax", "import jaxmech")

    def track_pendulum(self) -> float:
        """Time the first `simulate` of a pendulum."""
        return cpu_seconds(SYSTEM.format(model="pendulum"), SIMULATED)

    def track_four_bars(self) -> float:
        """Time the first `simulate` of two four-bar linkages in a row."""
        return cpu_seconds(SYSTEM.format(model="four_bars"), SIMULATED)


class Batch:
    """Warm batches with the defaults of `simulate`."""

    params = ("double_pendulum", "four_bars", "andrews")
    param_names = ("model",)

    def setup(self, name: str) -> None:
        """Compile and warm up."""
        jax.config.update("jax_enable_x64", True)
        model = getattr(jm.models, name)()
        q, v = model.initial()
        self.states = jnp.tile(q, (BATCH, 1)), jnp.tile(v, (BATCH, 1))
        steps = jm.FixedSteps(5)

        def end(q: jax.Array, v: jax.Array) -> jax.Array:
            return jm.simulate(model.system, q, v, TS, model.params, steps=steps).q[-1]

        self.run = jax.jit(jax.vmap(end))
        self.slopes = jax.jit(jax.vmap(jax.grad(lambda q, v: end(q, v).sum())))
        jax.block_until_ready((self.run(*self.states), self.slopes(*self.states)))

    def time_rollout(self, name: str) -> None:
        """Time a batch of trajectories of 1,000 steps."""
        jax.block_until_ready(self.run(*self.states))

    def time_gradient(self, name: str) -> None:
        """Time their gradients."""
        jax.block_until_ready(self.slopes(*self.states))
