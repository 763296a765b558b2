"""The benchmark bicycle, and the picture of its eigenvalues over the speed in docs/modes.md.

python -m experiments.bicycle docs/pictures/modes_bicycle.png

Meijaard, Papadopoulos, Ruina and Schwab, Proc. R. Soc. A 463 (2007): two wheels that roll without
slip, a rear frame with a rigid rider, a front frame with fork and handlebar.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

import jaxmech as jm
from jaxmech import parts as jp
from jaxmech.plot.panels import styled

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


def _turn() -> np.ndarray:
    """The rates of the coordinates by the coordinates at 1 m/s, shape (28, 28).

    Quaternions of turning wheels are not cyclic coordinates, but a turn of a wheel about its own
    axis changes nothing: e' = e w / 2 is linear in e, with w = -(0, 1, 0) / radius.
    """
    W = np.zeros((28, 28))
    about_y = np.array([[0, 0, -1, 0], [0, 0, 0, -1], [1, 0, 0, 0], [0, 1, 0, 0]])
    for body, radius in ((0, REAR), (3, FRONT)):
        place = slice(7 * body + 3, 7 * body + 7)
        W[place, place] = -about_y / (2 * radius)
    return W


TURN = _turn()


def modes_at() -> Callable[[Any], jm.analysis.Modes]:
    """The modes of riding straight ahead, as a function of the speed [m/s]."""
    mechanism, _ = whipple_bicycle()
    system, params = mechanism.system, mechanism.params

    def modes(speed: Any) -> jm.analysis.Modes:
        linear = jm.analysis.linearize(system, *rolling(speed), params, W=speed * TURN)
        return jm.analysis.modes(linear)

    return modes


def stability_limits(modes: Callable[[Any], jm.analysis.Modes]) -> tuple[float, float]:
    """The speeds at which weave ends and capsize begins [m/s], from the modes of a speed."""

    def growth(speed: Any) -> Any:
        found = modes(speed)
        return jnp.where(found.zero, -jnp.inf, found.eigenvalues.real).max()

    weave, capsize = (brentq(growth, *ends, xtol=1e-12) for ends in ((4.0, 5.0), (5.5, 6.5)))
    return weave, capsize


def main(path: str | Path) -> None:
    jax.config.update("jax_enable_x64", True)
    speeds = jnp.linspace(0.0, 10.0, 161)
    modes = modes_at()
    found, limits = jax.vmap(modes)(speeds), stability_limits(modes)
    with styled():
        _drawn(found, speeds, limits).savefig(path)


def _drawn(found: Any, speeds: Any, limits: tuple[float, float]) -> Figure:
    figure, ax = plt.subplots()
    x = np.repeat(np.asarray(speeds)[:, None], found.eigenvalues.shape[1], axis=1)
    is_mode = ~np.asarray(found.zero)
    values = np.asarray(found.eigenvalues)[is_mode]
    ax.plot(x[is_mode], values.real, ".", markersize=3, label="real part")
    waves = values.imag > 0
    ax.plot(x[is_mode][waves], values.imag[waves], ".", markersize=2, label="imaginary part")
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.axvspan(*limits, color="grey", alpha=0.12, linewidth=0)
    ax.set_ylim(-10, 12)  # without most of the castering mode
    ax.set_xlabel("speed [m/s]")
    ax.set_ylabel("eigenvalue [1/s]")
    ax.legend(loc="upper left", frameon=False)
    for name, limit in zip(("weave", "capsize"), limits, strict=True):
        print(f"{name}: {limit:.8f} m/s")
        ax.axvline(limit, color="grey", linewidth=0.8, linestyle=":")
        ax.text(limit + 0.1, 11.5, f"{name}\n{limit:.4f} m/s", va="top", fontsize="small")
    return figure


if __name__ == "__main__":
    main(sys.argv[1])
