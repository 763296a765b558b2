"""What a page shows: nodes of a scene of viser, each with its points at all frames.

A point that is not known, after a failure, is drawn at one that is; a node without any known point
is invisible.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

Floats = np.ndarray


@dataclass(frozen=True, eq=False)
class AbstractNode:
    """A node of the scene.

    Attributes:
        name: its place in the scene tree, "/bodies/arm/lines".
        points: its points at all frames [m], (K, ..., 3).
    """

    name: str
    points: Floats
    entry: ClassVar[str] = "points"  # of the handle of viser that holds the points

    @abstractmethod
    def added(self, scene: Any, points: Floats) -> Any:
        """Add the node to a scene of viser; its handle."""

    def shown_at(self, handle: Any, k: int) -> None:
        """Move the node to frame k."""
        points, previous = self.points[k], self.points[max(k - 1, 0)]
        if k and np.array_equal(points, previous, equal_nan=True):
            return
        is_known = np.isfinite(points).all(axis=-1)
        if k == 0 or is_known.any() != np.isfinite(previous).all(axis=-1).any():
            handle.visible = bool(is_known.any())
        if k and is_known.any():
            setattr(handle, self.entry, known(points))


def known(points: Floats) -> Floats:
    """Points as viser takes them, with a known one, or the origin, for each unknown one."""
    is_known = np.isfinite(points).all(axis=-1)
    first = points[is_known][0] if is_known.any() else np.zeros(3)
    return np.where(is_known[..., None], points, first).astype(np.float32)


def linear(colors: Any) -> Floats:
    """Colours as viser takes those of lines and arrows: in proportion to the light, not sRGB."""
    x = np.asarray(colors) / 255
    light = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return np.round(255 * light).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Lines(AbstractNode):
    """Straight lines between pairs of points, (K, m, 2, 3), of one colour each, (m, 3)."""

    colors: Floats
    thickness: float  # [m]

    def added(self, scene: Any, points: Floats) -> Any:
        """Add the lines."""
        colors = linear(np.repeat(self.colors[:, None], 2, axis=1))
        return scene.add_line_segments(self.name, points, colors, thickness=self.thickness)


@dataclass(frozen=True, eq=False)
class Surfaces(AbstractNode):
    """Triangles (F, 3) between vertices (K, V, 3)."""

    faces: Floats
    color: tuple[int, int, int]
    opacity: float
    entry: ClassVar[str] = "vertices"

    def added(self, scene: Any, points: Floats) -> Any:
        """Add the triangles, without shadows."""
        return scene.add_mesh_simple(
            self.name, points, self.faces, color=self.color, opacity=self.opacity, side="double",
            flat_shading=True, cast_shadow=False, receive_shadow=False,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dots(AbstractNode):
    """Dots at points (K, m, 3)."""

    color: tuple[int, int, int]
    size: float  # diameter [m]

    def added(self, scene: Any, points: Floats) -> Any:
        """Add the dots."""
        return scene.add_point_cloud(
            self.name, points, self.color, point_size=self.size, point_shape="circle",
            precision="float32",
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Arrows(AbstractNode):
    """Arrows from the first to the second of a pair of points, (K, m, 2, 3)."""

    color: tuple[int, int, int]
    size: float  # length of a head [m]

    def added(self, scene: Any, points: Floats) -> Any:
        """Add the arrows."""
        return scene.add_arrows(
            self.name, points, linear(self.color), shaft_radius=0.15 * self.size,
            head_radius=0.35 * self.size, head_length=self.size,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Caption(AbstractNode):
    """A text at a fixed point, with points (K, 3) only for the number of frames."""

    texts: tuple[str, ...]

    def added(self, scene: Any, points: Floats) -> Any:
        """Add the text, above its point."""
        return scene.add_label(self.name, self.texts[0], position=points, anchor="bottom-center")

    def shown_at(self, handle: Any, k: int) -> None:
        """Write the text of frame k."""
        if k and self.texts[k] != self.texts[k - 1]:
            handle.text = self.texts[k]
