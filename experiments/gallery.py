"""The pictures of docs/gallery.md: one animation for each model, from its default initial state.

`experiments.pictures` writes them.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxmech as jm

SECONDS = {  # length of the motion, about four or five seconds of animation
    "pendulum": 4.0,
    "double_pendulum": 5.0,
    "double_pendulum_angles": 5.0,
    "chain": 5.0,
    "bead_on_parabola": 3.0,
    "bead_on_rod": 1.2,
    "particle_on_curve": 8.0,
    "rolling_wheel": 6.0,
    "chaplygin_sleigh": 4.0,
    "four_bars": 4.0,
    "free_body": 20.0,
    "andrews": 0.03,
}
SPEED = {"andrews": 0.005, "free_body": 4.0, "particle_on_curve": 2.0}
FPS, DPI = 12.5, 55.0


def animation(name: str) -> Any:
    model = jm.models.make(name)
    ts = jnp.linspace(0.0, SECONDS[name], 401)
    sol = jm.simulate(model.system, *model.initial(), ts, model.params)
    return jm.animate(model, sol, speed=SPEED.get(name, 1.0), fps=FPS)


def mode(path: Path) -> Path:
    """Animate the second mode of the double pendulum, for docs/modes.md."""
    model = jm.models.double_pendulum()
    hanging = jm.analysis.equilibrium(model.system, [0.1, -0.9, 0.0, -1.9], model.params)
    found = jm.analysis.modes(hanging.linearization)
    k = int(jnp.argmax(found.eigenvalues.imag))
    w, shape = found.eigenvalues[k].imag, found.shapes[:, k].real
    ts = jnp.linspace(0.0, 2 * jnp.pi / w, 65)
    near = hanging.q + 0.4 * jnp.cos(w * ts)[:, None] * shape / jnp.abs(shape).max()
    q, _ = jax.vmap(lambda q: jm.assemble(model.system, q, hanging.v, 0.0, model.params))(near)
    return Path(jm.animate(model, (ts, q), speed=0.5, fps=FPS).save(path, dpi=DPI))
