"""The pictures of docs/gallery.md: one animation for each model, from its default initial state.

python -m experiments.gallery --out docs/gallery     # or with names of models
"""

import argparse
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
    "bead_on_rod": 2.0,
    "particle_on_curve": 8.0,
    "rolling_wheel": 6.0,
    "chaplygin_sleigh": 6.0,
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


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description="Animate every model.")
    parser.add_argument("names", nargs="*", default=[*jm.models.CATALOGUE], metavar="MODEL")
    parser.add_argument("--out", type=Path, default=Path("docs/gallery"), metavar="DIR")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        path = animation(name).save(arguments.out / f"{name}.gif", dpi=DPI)
        print(f"{path}  {path.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
