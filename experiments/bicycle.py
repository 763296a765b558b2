"""The benchmark bicycle, and the picture of its eigenvalues over the speed in docs/modes.md.

python -m experiments.bicycle docs/pictures/modes_bicycle.png

Meijaard, Papadopoulos, Ruina and Schwab, Proc. R. Soc. A 463 (2007): two wheels that roll without
slip, a rear frame with a rigid rider, a front frame with fork and handlebar.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech import plot

REAR, FRONT = 0.3, 0.35  # radii of the wheels [m]


def whipple_bicycle() -> tuple[jp.Mechanism, dict[str, jp.Start]]:
    """Make the mechanism with the parameters of table 1; x points ahead, y to the right, z down."""
    rear = jp.spatial_body("rear", mass=2.0, inertia=(0.0603, 0.12, 0.0603))
    frame_inertia = ((9.2, 0, 2.4), (0, 11.0, 0), (2.4, 0, 2.8))
    frame = jp.spatial_body("frame", mass=85.0, inertia=frame_inertia)
    fork_inertia = ((0.05892, 0, -0.00756), (0, 0.06, 0), (-0.00756, 0, 0.00708))
    fork = jp.spatial_body("fork", mass=4.0, inertia=fork_inertia)
    front = jp.spatial_body("front", mass=3.0, inertia=(0.1405, 0.28, 0.1405))
    at = {"rear": (0, 0, -REAR), "frame": (0.3, 0, -0.9), "fork": (0.9, 0, -0.7),
          "front": (1.02, 0, -FRONT)}  # fmt: skip

    def on(body: str, point: Any) -> Any:
        return np.subtract(point, at[body])

    def wheel(name: str, body: Any, radius: float) -> jp.Joint:
        o = (0, 0, 0)
        return jp.rolling_wheel(
            name, jp.ground, o, body, o, normal=(0, 0, -1), axle=(0, 1, 0), radius=radius
        )

    def hinge(name: str, a: Any, b: Any, point: Any, axis: Any = (0, 1, 0)) -> jp.Joint:
        return jp.revolute(name, a, on(a.name, point), b, on(b.name, point), axis=axis)

    tilt = np.pi / 10
    joints = [
        hinge("rear hub", rear, frame, at["rear"]),
        hinge("head", frame, fork, (1.1, 0, 0), (np.sin(tilt), 0, np.cos(tilt))),
        hinge("front hub", front, fork, at["front"]),
        wheel("rear tyre", rear, REAR),
        wheel("front tyre", front, FRONT),
    ]
    weight = jp.gravity(9.81, down=(0, 0, 1))
    return (
        jp.Mechanism([rear, frame, fork, front], joints, [weight], coordinates="bodies"),
        {name: jp.Start(point) for name, point in at.items()},
    )


def rolling(speed: Any) -> tuple[Any, Any]:
    """Positions and velocities of the upright bicycle, rolling straight; wheels turn about -y."""
    mechanism, starts = whipple_bicycle()
    starts = {name: start._replace(velocity=(speed, 0, 0)) for name, start in starts.items()}
    for wheel, radius in (("rear", REAR), ("front", FRONT)):
        starts[wheel] = starts[wheel]._replace(spin=(0, -speed / radius, 0))
    return mechanism.guess(starts)


def eigenvalues(speeds: Any) -> jm.analysis.RootLocus:
    mechanism, _ = whipple_bicycle()
    system, params = mechanism.system, mechanism.params
    # quaternions of turning wheels are not cyclic coordinates, but their rotation is a symmetry
    symmetries = jm.analysis.symmetries(system, *rolling(4.0), 0.0, params)

    def linear(speed: Any) -> jm.analysis.Linearization:
        return jm.analysis.linearize(system, *rolling(speed), params, symmetries=symmetries)

    return jm.analysis.root_locus(linear, speeds, name="speed [m/s]")


def main(path: str) -> None:
    jax.config.update("jax_enable_x64", True)
    found = eigenvalues(jnp.linspace(0.0, 10.0, 81))
    print(found)
    figure, ax = plt.subplots(figsize=(6.0, 3.8), layout="constrained")
    plot.root_locus(found, over_parameter=True, ax=ax)
    ax.set_ylim(-10, 12)  # without most of the castering branch
    for x in found.crossings:
        name = "weave" if x.frequency else "capsize"
        ax.axvline(x.value, color="grey", linewidth=0.8, linestyle=":")
        ax.text(x.value + 0.1, 11.5, f"{name}\n{x.value:.4f} m/s", va="top", fontsize="small")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main(sys.argv[1])
