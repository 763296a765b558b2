"""The animation at the top of README.md: the three motions of its example in one picture.

`experiments.pictures` writes it.
"""

from pathlib import Path

import jax
import jax.numpy as jnp

import jaxmech as jm


def lagrangian(q, v, t, p):
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * (q[1] + q[3])


def rods(q, t, p):
    first, second = q[:2], q[2:] - q[:2]
    return jnp.stack([first @ first, second @ second]) / 2 - p["l"] ** 2 / 2


def geometry(q, t, p):
    return {"rods": jnp.stack([jnp.zeros(2), q[:2], q[2:]]), "middle": q[:2], "tip": q[2:]}


def main(path: Path) -> None:
    """Write the animation; in double precision."""
    system = jm.System(lagrangian, [jm.Holonomic(rods)], coordinates=("x1", "y1", "x2", "y2"))
    ts, params = jnp.linspace(0.0, 5.0, 501), {"m": 1.0, "l": 1.0, "g": 9.81}

    def swing(tip, p):
        q0, v0 = jm.assemble(system, jnp.array([1.0, 0.0, *tip]), jnp.zeros(4), 0.0, p)
        return jm.simulate(system, q0, v0, ts, p, steps=jm.FixedSteps(per_save=5))

    tips = jnp.array([[1.0, -1.0], [2.0, 0.1], [1.7, 0.7]])
    motions = jax.vmap(swing, in_axes=(0, None))(tips, params)
    print(jm.animate(geometry, motions, params, fps=20.0).save(path, dpi=65.0))
