"""Members of a study in motion: small animations of one scale and one time, side by side."""

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from jaxmech.cli.report.layout import Picture, data_url
from jaxmech.ensemble import ReplayedTrajectory
from jaxmech.plot import Animation, animate
from jaxmech.status import succeeded

_SECONDS, _FPS = 5.0, 10.0
_COLORS = 64  # of a still
_WIDTH, _DPI = 3.0, 80.0  # inches, and pixels per inch


def clips(trajectories: Sequence[ReplayedTrajectory]) -> dict[int, Picture]:
    """A picture of each trajectory that moves, by its index; its caption tells a failure."""
    motions = {x.index: motion for x in trajectories if (motion := _animation(x)) is not None}
    if not motions:
        return {}
    _share_limits([*motions.values()])
    failures = {x.index: _failure(x) for x in trajectories}
    with tempfile.TemporaryDirectory() as folder:
        return {
            index: clip(motion, Path(folder) / f"{index}.gif", failures[index])
            for index, motion in motions.items()
        }


def _failure(trajectory: ReplayedTrajectory) -> str:
    status = trajectory.status
    at = float(trajectory.values["t_failed"])
    return "" if succeeded(status) else f"It failed at t = {at:.4g} s: {status.name}."


def _animation(trajectory: ReplayedTrajectory) -> Animation | None:
    model, ts = trajectory.subject.model, trajectory.ts
    if model is None or model.geometry is None or trajectory.last_good < 1:
        return None
    speed = max(float(ts[-1] - ts[0]) / _SECONDS, 1.0)
    return animate(model, (ts, trajectory.values["q"]), trajectory.params, speed=speed, fps=_FPS)


def _share_limits(motions: Sequence[Animation]) -> None:
    """Give all pictures the same scale, so that they can be compared."""
    for letter in "xyz" if motions[0].ax.name == "3d" else "xy":
        ends = np.array([getattr(one.ax, f"get_{letter}lim")() for one in motions])
        for one in motions:
            one.ax.set(**{f"{letter}lim": (ends.min(), ends.max())})
    for one in motions:
        space = one.ax
        sides = [np.ptp(space.get_xlim()), np.ptp(space.get_ylim())]
        if space.name == "3d":
            sides.append(np.ptp(space.get_zlim()))  # type: ignore[attr-defined]
            space.set_box_aspect(sides, zoom=0.85)  # type: ignore[call-arg, arg-type]
            space.set(zlabel="")
        space.tick_params(labelsize="x-small")
        space.set(xlabel="", ylabel="")
        shape = 0.85 if space.name == "3d" else float(np.clip(sides[1] / sides[0], 0.5, 1.2))
        one.figure.set_size_inches(_WIDTH, _WIDTH * shape + 0.3)


def clip(motion: Animation, file: Path, caption: str) -> Picture:
    """A small animation, saved as a .gif file, and what is printed in its place."""
    motion.save(file, dpi=_DPI, progress=False)
    still = io.BytesIO()
    motion.strobe().savefig(still, format="png", dpi=1.5 * _DPI)
    small = io.BytesIO()
    with Image.open(still) as picture:
        picture.convert("RGB").quantize(_COLORS).save(small, "png", optimize=True)
    return Picture(data_url(file.read_bytes(), "gif"), caption, data_url(small.getvalue(), "png"))
