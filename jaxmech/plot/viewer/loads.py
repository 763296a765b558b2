"""The forces of joints as arrows."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmech.display.motions import Display
from jaxmech.observe import observe
from jaxmech.parts.geometry import joint_points
from jaxmech.parts.mechanism import Mechanism
from jaxmech.plot.panels import ORANGE
from jaxmech.plot.paths import Track, shapes_at
from jaxmech.plot.viewer.nodes import Arrows
from jaxmech.plot.viewer.shapes import Box, in_front, in_space, rgb
from jaxmech.solution import Solution

_LONGEST = 0.35  # length of the longest arrow, relative to the size of the moving shapes
_HEAD = 0.04  # length of a head
_USUAL = 0.98  # share of the forces that are at most as long; peaks of an impact are longer
_LEAST = 1e-3  # force relative to the largest below which there is no arrow
_FRONT = 3.0  # layers in front of the bodies


def arrows_of(
    mechanism: Mechanism, solution: Solution, display: Display, times: np.ndarray, box: Box,
    scale: float | None, other_params: bool,
) -> tuple[list[Arrows], float]:  # fmt: skip
    """The forces of all joints with names on their second bodies, and the metres per newton.

    They are those of the first trajectory that is shown.
    """
    single, params = _first(solution, display)
    loads = observe(mechanism.system, single, params, other_params=other_params).loads
    forces = {name: np.asarray(force, float) for name, (force, _) in loads.items()}
    if not forces:
        return [], 0.0
    largest = _usual([*forces.values()])
    scale = _LONGEST * box.size / largest if scale is None and largest else scale or 0.0
    points = _points(mechanism, display, times, params)
    ts = np.asarray(single.ts, float)
    nodes = []
    for name, force in forces.items():
        arrow = scale * _interpolated(times, ts, force)
        arrow[np.linalg.norm(arrow, axis=1) <= _LEAST * scale * largest] = np.nan
        start, end = (in_space(x, box, _FRONT) for x in (points[name], points[name] + arrow))
        start = np.where(np.isfinite(end), start, np.nan)
        pair = in_front(np.stack([start, end], axis=1)[:, None], box)
        place = f"/forces/{name.replace('/', '_')}"
        nodes.append(Arrows(place, pair, rgb(ORANGE), _HEAD * box.size))
    return nodes, scale


def _first(solution: Solution, display: Display) -> tuple[Solution, Any]:
    params = display.params
    if display.batched:
        params = jax.tree.map(lambda x: x[0], params)
    axes, k = solution.q.ndim - 2, display.members[0]
    if not axes:
        return solution, params
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[axes:])[k], solution), params


def _points(
    mechanism: Mechanism, display: Display, times: np.ndarray, params: Any
) -> Mapping[str, np.ndarray]:
    def points(q: Any, t: Any, params: Any) -> Mapping[str, Any]:
        at_rest = np.zeros(mechanism.system.n_velocities, int)
        q, _, t, params = mechanism.system.arguments(q, at_rest, t, params)
        return joint_points(mechanism.kinematics, mechanism.joints, q, t, params)

    track = display.track
    first = Track(track.ts[:1], track.q[:1], track.v[:1])
    return {
        name: x[0] for name, x in shapes_at(points, first, times, params, batched=False).items()
    }


def _usual(forces: Sequence[np.ndarray]) -> float:
    sizes = np.concatenate([np.linalg.norm(force, axis=1) for force in forces])
    finite_sizes = sizes[np.isfinite(sizes)]
    return float(np.quantile(finite_sizes, _USUAL)) if finite_sizes.size else 0.0


def _interpolated(times: np.ndarray, ts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (T, d) at other times, (K, d); unknown where the neighbours are."""
    sign = 1.0 if ts[-1] >= ts[0] else -1.0
    return np.stack([np.interp(sign * times, sign * ts, x) for x in values.T], axis=1)
