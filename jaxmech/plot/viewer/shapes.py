"""The shapes of bodies as nodes: the first trajectory in full, the others as ghosts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_rgb

from jaxmech.plot.panels import GREY
from jaxmech.plot.paths import THICK, Shapes, bounds, is_empty, is_outline, moving
from jaxmech.plot.scene import DARK, colors_by_body
from jaxmech.plot.viewer.nodes import AbstractNode, Dots, Lines, Surfaces

ROD, CURVE, DOT = 0.014, 0.005, 0.024  # widths relative to the size of the moving shapes
_EDGE = 0.009  # of an outline with corners
_FADED = 0.5  # share of white in the colour of a ghost
_OPACITY = 0.3  # of a surface
_REACH = 2.0  # how far shapes at rest are drawn beyond the moving ones, relative to their size
_DEPTH = 2e-3  # distance between layers in the plane, relative to the size

Color = tuple[int, int, int]


@dataclass(frozen=True)
class Box:
    """The box around what moves: corners (3,), and its largest side."""

    low: np.ndarray
    high: np.ndarray
    is_planar: bool

    @property
    def center(self) -> np.ndarray:
        """The middle of the box."""
        return (self.low + self.high) / 2

    @property
    def size(self) -> float:
        """The largest side [m]."""
        return float((self.high - self.low).max()) or 1.0


def box_around(shapes: Shapes) -> Box:
    """The box around the shapes that move, or around all if none does."""
    low, high = bounds(moving(shapes) or shapes)
    padding = (0, 3 - len(low))
    return Box(np.pad(low, padding), np.pad(high, padding), is_planar=len(low) == 2)


def nodes_of(shapes: Shapes, members: Sequence[int], box: Box) -> Iterator[AbstractNode]:
    """The nodes of all shapes; `members` are the numbers of the trajectories."""
    shapes = {name: points for name, points in shapes.items() if not is_empty(points)}
    in_motion = moving(shapes)
    colors = colors_by_body(in_motion)
    at_rest = {name: points[0] for name, points in shapes.items() if name not in in_motion}
    yield from _drawn("/still", at_rest, dict.fromkeys(at_rest, GREY), box, 0.0)
    bodies = dict.fromkeys(name.partition(".")[0] for name in in_motion)
    for body in bodies:
        parts = {n: x[0] for n, x in in_motion.items() if n.partition(".")[0] == body}
        yield from _drawn(f"/bodies/{body.replace('/', '_')}", parts, colors, box, 1.0)
    for k, member in enumerate(members[1:], start=1):
        parts = {name: points[k] for name, points in in_motion.items()}
        yield from _drawn(f"/ghosts/{member}", parts, colors, box, -float(k), faded=_FADED)


def _drawn(
    place: str, shapes: Shapes, colors: dict[str, str], box: Box, layer: float, faded: float = 0.0
) -> Iterator[AbstractNode]:
    lines: dict[str, list[tuple[np.ndarray, Color]]] = {"rods": [], "edges": [], "lines": []}
    dots = []
    is_still, is_ghost = layer == 0, layer < 0
    for name, points in shapes.items():
        x = in_space(points, box, layer)
        if points.ndim == 2:
            dots.append(x)
            continue
        color = rgb(colors[name], faded)
        if is_still:
            x = _clipped(x, box)
        elif is_outline(points) and not is_ghost:
            fan = in_space(points, box, layer - 0.5)
            yield _surface(f"{place}/{name}", fan, color)
        pairs = np.stack([x[:, :-1], x[:, 1:]], axis=2)
        is_thin = is_still or is_ghost or points.shape[1] > THICK
        kind = "lines" if is_thin else "edges" if is_outline(points) else "rods"
        lines[kind].append((pairs, color))
    for kind, width in (("rods", ROD), ("edges", _EDGE), ("lines", CURVE)):
        if lines[kind]:
            line_colors = np.concatenate([[color] * pairs.shape[1] for pairs, color in lines[kind]])
            pairs = np.concatenate([pairs for pairs, _ in lines[kind]], axis=1)
            yield Lines(f"{place}/{kind}", pairs, line_colors.astype(np.uint8), width * box.size)
    if dots:
        color = rgb(GREY if is_still else DARK, faded)
        size = DOT * box.size * (0.6 if is_ghost else 1.0)
        positions = np.stack(dots, axis=1)
        yield Dots(f"{place}/dots", in_front(positions, box), color, size)


def in_space(points: np.ndarray, box: Box, layer: float) -> np.ndarray:
    """Points in space; those of the plane at a depth of their own, so that all can be seen."""
    if points.shape[-1] == 3:
        return points
    depth = np.full((*points.shape[:-1], 1), layer * _DEPTH * box.size)
    return np.concatenate([points, depth], axis=-1)


def in_front(points: np.ndarray, box: Box, layers: float = 1.0) -> np.ndarray:
    """Points of the plane moved to the front."""
    depth = layers * _DEPTH * box.size if box.is_planar else 0.0
    return points + np.array([0.0, 0.0, depth])


def rgb(color: str, faded: float = 0.0) -> Color:
    """A colour as three integers, mixed with white."""
    r, g, b = (round(255 * (x + faded * (1 - x))) for x in to_rgb(color))
    return r, g, b


def _surface(name: str, outline: np.ndarray, color: Color) -> Surfaces:
    count = outline.shape[1] - 1
    middle = outline[:, :-1].mean(axis=1, keepdims=True)
    vertices = np.concatenate([outline[:, :-1], middle], axis=1)
    k = np.arange(count)
    faces = np.stack([np.full(count, count), k, (k + 1) % count], axis=1)
    return Surfaces(name, vertices, faces, color, _OPACITY)


def _clipped(points: np.ndarray, box: Box) -> np.ndarray:
    """The part near the moving shapes of a straight line that goes far; other lines as they are."""
    if points.shape[1] != 2:
        return points
    low, high = box.center - _REACH * box.size, box.center + _REACH * box.size
    start, direction = points[:, :1], points[:, 1:] - points[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        first, last = (low - start) / direction, (high - start) / direction
    inward = np.where(direction == 0, -np.inf, np.minimum(first, last))
    outward = np.where(direction == 0, np.inf, np.maximum(first, last))
    s = np.concatenate([inward.max(axis=2).clip(0, 1), outward.min(axis=2).clip(0, 1)], axis=1)
    return start + s[..., None] * direction


def title_point(box: Box, count: int) -> np.ndarray:
    """Where the time is written, above the middle, at all frames, (count, 3)."""
    point = box.center.copy()
    axis = 1 if box.is_planar else 2
    point[axis] = box.high[axis] + 0.08 * box.size
    return np.broadcast_to(point, (count, 3))
