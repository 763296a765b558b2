"""`jaxmech doctor`: whether this installation computes, with what, and where it stores things."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech import compiler
from jaxmech.compiler import cache_folder
from jaxmech.config import environment
from jaxmech.integrate import FixedSteps
from jaxmech.models import pendulum
from jaxmech.run import simulate
from jaxmech.utils.caller import USE_FLOAT64
from jaxmech.utils.text import titled_lines

_TS = np.linspace(0.0, 1.0, 21)


def facts() -> list[str]:
    """Versions, devices, precision, and the folder of native code, a line each."""
    known = environment()
    rows = [(name, str(value)) for name, value in known.items() if value != ""]
    for device in compiler.all_devices():
        how = compiler.backend_of(device)
        kind = f"{device.device_kind}; batches run as {how}"
        rows.append((f"{device.platform}:{device.id}", kind))
    precision = "float64" if known["x64"] else f"float32; {USE_FLOAT64}"
    rows.append(("Python", f"computes in {precision}"))
    rows.append(("native code", f"stored in {cache_folder() or 'no folder'}"))
    return titled_lines(rows, 16)


def failed_tests() -> Iterator[str]:
    """Compute a small motion, in batches and with gradients, and report what is wrong with it."""
    model = pendulum()

    def motion(theta: jax.Array) -> jax.Array:
        q, v = model.initial({"theta": theta})
        return simulate(model.system, q, v, _TS, model.params, steps=FixedSteps(20)).q

    def end(theta: jax.Array | float) -> jax.Array:
        return motion(jnp.asarray(theta))[-1, 0]

    sol = simulate(model.system, *model.initial(), _TS, model.params)
    thetas = jnp.linspace(0.5, 2.0, 16)
    native = jax.vmap(motion)(thetas)
    with compiler.off():
        plain = jax.vmap(motion)(thetas)
    difference = (end(1.0 + 1e-5) - end(1.0 - 1e-5)) / 2e-5
    for what, error, allowed in (
        ("constraints hold to", sol.position_residual.max(), 1e-10),
        ("the energy drifts by", sol.energy_drift, 1e-4),
        ("native code and plain vmap differ by", abs(native - plain).max(), 1e-9),
        ("gradient and difference differ by", abs(jax.grad(end)(1.0) - difference), 1e-6),
    ):
        if not float(error) <= allowed:
            yield f"  self-test FAILED: {what} {float(error):.1e}"
