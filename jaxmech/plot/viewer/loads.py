"""The forces of joints as arrows, and what is known of each body."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.colors import to_rgb

from jaxmech.parts import Gravity, Joint, Mechanism, Reader
from jaxmech.plot.bodies import down_of
from jaxmech.plot.motions import Display
from jaxmech.plot.panels import ORANGE
from jaxmech.plot.paths import shapes_at
from jaxmech.plot.viewer.stage import Box, Item, in_space
from jaxmech.run import Solution, observe

_LONGEST = 0.35  # length of the longest arrow, relative to the size of the moving shapes
_RADIUS = 0.007  # of a shaft, relative to the size
_USUAL = 0.98  # share of the forces that are at most as long; peaks of an impact are longer
_LEAST = 1e-3  # force relative to the largest below which there is no arrow


def arrows_of(
    mechanism: Mechanism, solution: Solution, display: Display, times: np.ndarray, box: Box,
    scale: float | None, other_params: bool,
) -> tuple[list[Item], float]:  # fmt: skip
    """The forces of all joints with names on their second bodies, and the metres per newton.

    They are those of the first trajectory that is shown.
    """
    single, params = solution, display.first_params
    if axes := solution.q.ndim - 2:
        # Not by -1, which has no meaning for arrays without entries.
        size, k = solution.status.size, display.members[0]
        single = jax.tree.map(lambda x: x.reshape(size, *x.shape[axes:])[k], solution)
    loads = observe(mechanism.system, single, params, other_params=other_params).loads
    forces = {name: np.asarray(force, float) for name, (force, _) in loads.items()}
    if not forces:
        return [], 0.0
    largest = _usual([*forces.values()])
    scale = _LONGEST * box.size / largest if scale is None and largest else scale or 0.0
    points = _points(mechanism, display, times, params)
    ts = np.asarray(single.ts, float)
    items = []
    for name, force in forces.items():
        arrow = scale * _interpolated(times, ts, force)
        arrow[np.linalg.norm(arrow, axis=1) <= _LEAST * scale * largest] = np.nan
        start, end = points[name], points[name] + arrow
        pair = np.stack([np.where(np.isfinite(end), start, np.nan), end], axis=1)
        pair = in_space(pair, box)
        if box.is_planar:  # in front of the bodies
            pair[..., 2] = box.high[2]
        label = f"force of {name}"
        items.append(Item(label, "arrow", 0, to_rgb(ORANGE), pair, radius=_RADIUS * box.size))
    return items, scale


def facts_of(mechanism: Mechanism, display: Display, times: np.ndarray) -> dict[str, Any]:
    """By body: its mass, and the names and values of its coordinates at all times."""
    params = display.first_params
    q = display.track.at(times)[0]
    order = mechanism.system.coordinates
    facts: dict[str, Any] = {}
    links = {x.body.name: x.name for x in getattr(mechanism.kinematics, "links", ())}
    for body in mechanism.bodies:
        read = Reader(f"body {body.name!r}", np.asarray(times[0]), params)
        prefixes = {body.name, links.get(body.name, body.name)}
        columns = [k for k, name in enumerate(order) if name.rpartition(".")[0] in prefixes]
        facts[body.name] = {
            "mass": float(body.inertia(read)[0]),
            "names": [order[k] for k in columns],
            "values": q[:, columns],
        }
    return facts


def gravity_of(mechanism: Mechanism, display: Display) -> np.ndarray | None:
    """The direction of gravity, (3,); None without gravity."""
    if not any(isinstance(force, Gravity) for force in mechanism.forces):
        return None
    start = np.asarray(display.track.span[0])
    down = np.asarray(down_of(mechanism, start, display.first_params), float)
    return np.pad(down, (0, 3 - len(down)))


def _points(
    mechanism: Mechanism, display: Display, times: np.ndarray, params: Any
) -> Mapping[str, np.ndarray]:
    def points(q: Any, t: Any, params: Any) -> Mapping[str, Any]:
        at_rest = np.zeros(mechanism.system.n_velocities, int)
        q, _, t, params = mechanism.system.arguments(q, at_rest, t, params)
        return {
            joint.name: joint.point_on_b(
                mechanism.kinematics.frames(joint.bodies[1:2], q, t, params)[0],
                Reader(joint.part, t, params),
            )
            for joint in mechanism.joints
            if isinstance(joint, Joint) and joint.name
        }

    shapes = shapes_at(points, display.track, times, params, batched=False)
    return {name: x[0] for name, x in shapes.items()}


def _usual(forces: Sequence[np.ndarray]) -> float:
    sizes = np.concatenate([np.linalg.norm(force, axis=1) for force in forces])
    finite_sizes = sizes[np.isfinite(sizes)]
    return float(np.quantile(finite_sizes, _USUAL)) if finite_sizes.size else 0.0


def _interpolated(times: np.ndarray, ts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (T, d) at other times, (K, d); unknown where the neighbours are."""
    sign = 1.0 if ts[-1] >= ts[0] else -1.0
    return np.stack([np.interp(sign * times, sign * ts, x) for x in values.T], axis=1)
