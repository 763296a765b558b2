"""The recordings of docs/tutorial.md: a motor, a slider-crank, a spring, two sensors.

python -m experiments.slider_crank docs/data/slider_crank.csv

Parameters and noise are known, so that the answer of the tutorial can be checked. The seal of
the slider has dry friction, which the first model of the tutorial lacks.
"""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

CRANK, ROD, ROD_MASS = 0.04, 0.12, 0.15  # lengths [m] and mass [kg]
TRUE = {"inertia": 1.5e-3, "mass": 0.6, "stiffness": 150.0, "drag": 8e-3, "dry": 0.4}
REST = 0.11  # of the slider, with the spring relaxed [m]
NOISE = 2e-3, 0.1e-3  # of the encoder [rad] and the laser [m]
TIMES = np.arange(201) / 50  # [s]


def slider_crank() -> jp.Mechanism:
    """Make the mechanism, seen from above; `motor` is a signal."""
    crank = jp.planar_body("crank", mass=0.3, inertia="inertia")
    rod = jp.planar_body("rod", mass=ROD_MASS, inertia=ROD_MASS * ROD**2 / 12)
    slider = jp.planar_body("slider", mass="mass", inertia=1e-4)
    axle = jp.revolute("axle", jp.ground, (0, 0), crank, (0, 0))
    guide = jp.prismatic("guide", jp.ground, (0, 0), slider, (0, 0), axis=(1, 0))
    joints = [
        axle,
        jp.revolute("big end", crank, (CRANK, 0), rod, (-ROD / 2, 0)),
        guide,
        jp.revolute("small end", rod, (ROD / 2, 0), slider, (0, 0)),
    ]
    forces = [
        jp.torque("motor", jp.ground, crank, lambda t, p: p["torque"](t)),
        jp.spring("return", jp.ground, (0, 0), slider, (0, 0), stiffness="stiffness", length=REST),
        jp.torsion_damper("bearing", jp.ground, crank, damping="drag"),
        jp.friction("seal", guide, coulomb="dry", smooth=0.01),
    ]
    idle = jm.Signal([0.0, 1.0], [0.0, 0.0], "hold")
    params = {**TRUE, "torque": idle}
    return jp.Mechanism([crank, rod, slider], joints, forces, params=params)


def recording(number: int, draw: np.random.Generator) -> np.ndarray[Any, Any]:
    """The table of a recording: number, time, torque, encoder, laser."""
    mechanism = slider_crank()
    torque = np.repeat(draw.uniform(-0.08, 0.08, 41), 5)[: TIMES.size]
    params = {**TRUE, "torque": jm.Signal(TIMES, torque, "hold")}
    angle = 1.0 + 0.1 * number
    starts = {"axle": jp.Start(angle), "guide": jp.Start(CRANK * np.cos(angle) + 0.118)}
    starts["big end"] = jp.Start(-angle - np.arcsin(CRANK * np.sin(angle) / ROD))
    system = mechanism.system
    q, v = jm.assemble(system, *mechanism.guess(starts), 0.0, params, fixed=["axle.angle"])
    sol = jm.simulate(system, q, v, TIMES, params, steps=jm.FixedSteps(per_save=40))
    shown = np.stack([sol["axle.angle"], sol["guide.position"]], axis=1)
    shown += draw.normal(size=shown.shape) * NOISE
    return np.column_stack([np.full(TIMES.size, number), TIMES, torque, shown])


def main(path: str) -> None:
    """Write three recordings."""
    jax.config.update("jax_enable_x64", True)
    draw = np.random.default_rng(0)
    rows = np.concatenate([recording(number, draw) for number in (1, 2, 3)])
    Path(path).parent.mkdir(exist_ok=True)
    header = "recording,time,torque,angle,position"
    np.savetxt(path, rows, "%d,%.2f,%.4f,%.5f,%.6f", header=header, comments="")


if __name__ == "__main__":
    main(sys.argv[1])
