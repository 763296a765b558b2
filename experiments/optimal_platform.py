"""A Stewart platform moved by six legs with the least effort: CPU seconds of the search.

    python -m experiments.optimal_platform

It is the platform of `experiments.derivatives`, 13 bodies in five loops, with forces in the legs in
place of springs and dampers. In a second it moves from rest to rest, by 10 cm, 15 cm upwards and
0.2 rad about the vertical. The guess is that it stays where it is.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.derivatives import stewart
from experiments.measuring import timed
from jaxmech import parts as jp
from jaxmech.control import Optimum, optimize

LEGS = range(6)


def lengths(place: Any, turn: float) -> np.ndarray:
    """Lengths of the legs where the platform is at a place, turned about the vertical [m]."""
    low, high = np.radians([[-10, 10, 110, 130, 230, 250], [-50, 50, 70, 170, 190, 290]])
    feet, heads = (
        np.stack([r * np.cos(a), r * np.sin(a), 0 * a], axis=1)
        for r, a in ((1.0, low), (0.5, high + turn))
    )
    return np.asarray(np.linalg.norm(heads + place - feet, axis=1))


def search(intervals: int = 8) -> tuple[Optimum, np.ndarray]:
    """The best motion, and the lengths of the legs at its end relative to the start."""
    made, starts = stewart()
    joints = {joint.name: joint for joint in made.joints if isinstance(joint, jp.Joint)}

    def force(k: int) -> Any:
        return jp.joint_force(f"drive{k}", joints[f"P{k}"], lambda x, rate, t, p: p[f"u{k}"](t))

    weight = jm.Signal([0.0, 1.0], [50.0, 50.0])  # a sixth, about
    params = {"m": 2.0, "c": -0.3} | {f"u{k}": weight for k in LEGS}
    forces = [jp.gravity(), *map(force, LEGS)]
    platform = jp.Mechanism(made.bodies, made.joints, forces, params=params)
    q, v = jm.assemble(platform, *platform.guess(starts))
    legs = np.array([platform.system.coordinates.index(f"P{k}.position") for k in LEGS])
    change = lengths([0.1, 0.0, 1.15], 0.2) - lengths([0.0, 0.0, 1.0], 0.0)
    aim = q[legs] + change
    best = optimize(
        platform, q, v, np.linspace(0.0, 1.0, intervals + 1), controls=[f"u{k}" for k in LEGS],
        cost=lambda q, v, t, p: sum((p[f"u{k}"](t) / 100) ** 2 for k in LEGS),
        end=lambda q, v, t, p: jnp.concatenate([q[legs] - aim, v[legs]]),
        guess=[np.tile(x, (intervals + 1, 1)) for x in (q, v)],
    )  # fmt: skip
    moved = np.asarray(best.solution.q - q[None])[:, legs]
    assert np.abs(moved[-1] - change).max() < 1e-4
    return best, moved


def main() -> None:
    """Print the optimum and the time that it takes, with all that is compiled."""
    os.environ["JAXMECH_KERNEL_CACHE"] = "off"
    jax.config.update("jax_enable_x64", True)
    seconds, _, (best, _) = timed(search, 0)
    print(best)
    print(f"{seconds:.0f} CPU s")


if __name__ == "__main__":
    main()
