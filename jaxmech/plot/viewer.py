"""`view`: a mechanism in motion in the browser, in three dimensions, and as one HTML file.

A page shows solids, lines, dots and arrows, each with its frames, by group; among them the forces
of joints, and what is known of each body. Its parts are in the folder `page`.
"""

import base64
import gzip
import html
import json
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.colors import to_rgb

from jaxmech import meshes
from jaxmech.geometry import Geometry
from jaxmech.interop.mujoco import Robot
from jaxmech.models import Model
from jaxmech.parts import Joint, Mechanism, Reader, gravity
from jaxmech.plot.mechanisms import down_of
from jaxmech.plot.motions import (
    Display,
    digits,
    display_of,
    extent,
    file_path,
    shapes_at,
)
from jaxmech.plot.panels import ORANGE
from jaxmech.plot.scene import FRAMED, Box, Item, box_around, in_space, items_of
from jaxmech.run import Solution, observe
from jaxmech.utils.checks import require_positive

_LARGEST = 2.0**30  # of a multiple: its second difference must fit into 32 bits
_FINE = 1e-5  # step of lengths relative to the size
_LONGEST = 0.35  # length of the longest arrow, relative to the size of the moving shapes
_RADIUS = 0.007  # of a shaft, relative to the size
_USUAL = 0.98  # share of the forces that are at most as long; peaks of an impact are longer
_LEAST = 1e-3  # force relative to the largest below which there is no arrow
_HEIGHT = 480  # pixels of a view in a notebook


@dataclass
class Stream:
    """Arrays, one after another; equal ones once."""

    parts: list[np.ndarray] = field(default_factory=list)
    count: int = 0
    seen: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def add(self, values: np.ndarray, step: float) -> dict[str, Any]:
        """Add an array (K, C); where it is and how it is read.

        Unknown rows at the end are left out; others repeat the one before.
        """
        known = np.isfinite(values).all(axis=1)
        rows = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        last = np.maximum.accumulate(np.where(known, np.arange(len(known)), 0))[:rows]
        kept = values[:rows][last] if rows else np.zeros((0, values.shape[1]))
        if rows and not known[0]:
            kept = np.where(np.isfinite(kept), kept, kept[np.argmax(known)])
        if rows > 1 and (np.abs(kept - kept[:1]) < step / 2).all() and rows == len(values):
            kept, rows = kept[:1], 1
        step = max(step, float(np.abs(kept).max(initial=0.0)) / _LARGEST)
        whole = np.round(kept / step).astype(np.int64)
        key = (whole.shape, step, rows == 1 or rows == len(values), whole.tobytes())
        if key not in self.seen:
            first = np.diff(whole, axis=0, prepend=0)
            second = np.diff(first, axis=0, prepend=0).astype("<i4")
            columns = whole.shape[1]
            self.seen[key] = {"at": self.count, "rows": rows, "columns": columns, "step": step}
            self.parts.append(second.T.ravel())
            self.count += second.size
        return self.seen[key]

    def text(self) -> str:
        """All numbers: bytes of equal significance together, compressed, in base 64."""
        numbers = np.concatenate([np.zeros(0, "<i4"), *self.parts])
        planes = numbers.view(np.uint8).reshape(-1, 4).T.tobytes()
        return base64.b64encode(gzip.compress(planes, 6, mtime=0)).decode("ascii")


_BASIC = {  # of which lines, dots and arrows consist
    "cylinder": meshes.cylinder(12),
    "cone": meshes.cone(20),
    "sphere": meshes.sphere(16, 8),
    "triangle": meshes.Triangles(
        np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]])
    ),
}


def _packed(
    shown: Sequence[Item], size: float, facts: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], Stream]:
    """Items for the page, with facts about bodies by name, and the numbers that they refer to."""
    stream = Stream()
    stored: dict[Any, Any] = {}

    def index_of(mesh: meshes.Triangles) -> int:
        """Where a mesh is among those of the page, equal ones once."""
        vertices, faces = mesh
        step = 1e-5 * (float(np.abs(vertices).max(initial=0.0)) or 1.0)
        entry = {
            "vertices": stream.add(vertices, step) | {"all": len(vertices)},
            "faces": stream.add(faces.astype(float), 1.0),
        }
        key = (entry["vertices"]["at"], entry["faces"]["at"])
        stored.setdefault(key, entry)
        return [*stored].index(key)

    basic = {name: index_of(mesh) for name, mesh in _BASIC.items()}
    groups: dict[str, int] = {}
    items = []
    for item in shown:
        entry = {
            "group": groups.setdefault(item.group, len(groups)), "kind": item.kind,
            "member": item.member, "color": [round(x, 4) for x in item.color],
            "radius": item.radius, "closed": item.closed,
        }  # fmt: skip
        points = item.points
        if item.mesh is not None:
            entry["mesh"] = index_of(item.mesh)
            # Axes are as exact as lengths, whatever the unit of the latter.
            points = points * np.array([[size]] * 3 + [[1.0]])
        entry["track"] = stream.add(points.reshape(len(points), -1), _FINE * size)
        items.append(entry)
    listed = [{"name": name, **facts.get(name, {})} for name in groups]
    for group in listed:
        if "values" in group:
            values = group["values"]
            largest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
            group["values"] = stream.add(values, 1e-6 * largest)
    scene = {"items": items, "meshes": [*stored.values()], "groups": listed, "basic": basic}
    return scene, stream


def _arrows(
    mechanism: Mechanism, display: Display, box: Box, scale: float | None
) -> tuple[list[Item], float]:  # fmt: skip
    """The forces of all joints with names on their second bodies, and the metres per newton.

    They are those of the first trajectory.
    """
    motion = jax.tree.map(lambda x: jax.device_put(x[0]), display.solution)
    loads = observe(mechanism.system, motion, display.first_params, other_params=True).loads
    forces = {name: np.asarray(force, float) for name, (force, _) in loads.items()}
    if not forces:
        return [], 0.0
    sizes = np.linalg.norm(np.concatenate([*forces.values()]), axis=1)
    sizes = sizes[np.isfinite(sizes)]
    largest = float(np.quantile(sizes, _USUAL)) if sizes.size else 0.0
    scale = _LONGEST * box.size / largest if scale is None and largest else scale or 0.0

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

    times = display.times
    starts = shapes_at(points, display.track, times, display.params)
    sign = 1.0 if times[-1] >= times[0] else -1.0
    ts = sign * np.asarray(motion.ts, float)
    items = []
    for name, force in forces.items():  # unknown between saves of which one is
        columns = [np.interp(sign * times, ts, x) for x in force.T]
        arrow = scale * np.stack(columns, axis=1)
        arrow[np.linalg.norm(arrow, axis=1) <= _LEAST * scale * largest] = np.nan
        start, end = starts[name][0], starts[name][0] + arrow
        pair = np.stack([np.where(np.isfinite(end), start, np.nan), end], axis=1)
        pair = in_space(pair, box)
        if box.is_planar:  # in front of the bodies
            pair[..., 2] = box.high[2]
        label = f"force of {name}"
        items.append(Item(label, "arrow", 0, to_rgb(ORANGE), pair, radius=_RADIUS * box.size))
    return items, scale


def _facts(mechanism: Mechanism, display: Display) -> dict[str, Any]:
    """By body: its mass, and the names and values of its coordinates at all times."""
    q, order = display.track.at(display.times)[0], mechanism.system.coordinates
    facts: dict[str, Any] = {}
    links = {x.body.name: x.name for x in mechanism.kinematics.links}
    for body in mechanism.bodies:
        read = Reader(body.part, np.asarray(display.times[0]), display.first_params)
        prefixes = {body.name, links.get(body.name, body.name)}
        columns = [k for k, name in enumerate(order) if name.rpartition(".")[0] in prefixes]
        facts[body.name] = {
            "mass": float(body.inertia(read)[0]),
            "names": [order[k] for k in columns],
            "values": q[:, columns],
        }
    return facts


_FOLDER = Path(__file__).parent / "page"


@dataclass(frozen=True, eq=False)
class View:
    """The result of `view`, which a notebook shows as a player.

    Attributes:
        ts: displayed times of the motion [s], one for each frame, shape (K,).
        fps: frames per second.
        speed: seconds of the motion per second of the player.
        items: what is shown.
        box: the box around what moves.
        facts: what is known of bodies, by their names.
        title: the title of the page.
        label: text beside the time.
        force_scale: length of an arrow per force [m/N]; 0 without arrows.
        down: unit vector along which gravity pulls, (3,); None without gravity.
    """

    ts: np.ndarray
    fps: float
    speed: float
    items: tuple[Item, ...]
    box: Box
    facts: Mapping[str, Mapping[str, Any]]
    title: str = "motion"
    label: str = ""
    force_scale: float = 0.0
    down: np.ndarray | None = None

    def save(self, path: str | Path) -> Path:
        """Write one HTML file, which needs neither a server nor the network.

        Args:
            path: the file, whose suffix must be .html.

        Raises:
            ValueError: if the suffix is a different one.
            FileNotFoundError: if the folder does not exist.
        """
        target = file_path("path", path, ".html")
        target.write_text(self.html(), encoding="utf-8")
        return target

    def open(self) -> Path:
        """Write a temporary file and open it in the browser."""
        with tempfile.NamedTemporaryFile(prefix="jaxmech-", suffix=".html", delete=False) as file:
            path = self.save(file.name)
        webbrowser.open(path.as_uri())
        return path

    def html(self) -> str:
        box = self.box
        scene, stream = _packed(self.items, box.size, self.facts)
        legend = []
        if scale := self.force_scale:
            legend = [{"color": ORANGE, "text": f"forces of joints, {1 / scale:.3g} N per m"}]
        scene |= {
            "size": box.size,
            "times": [float(f"{t:.9g}") for t in self.ts],
            "fps": self.fps,
            "digits": digits(self.speed),
            "label": self.label.lstrip(", "),
            "box": {"low": box.low.tolist(), "high": box.high.tolist(), "planar": box.is_planar},
            "outermost": [[float(f"{x:.5g}") for x in point] for point in box.outermost],
            "down": None if self.down is None else self.down.tolist(),
            "legend": legend,
        }
        text = json.dumps(scene, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
        scripts = _asset("renderer.js") + _asset("player.js").replace('"use strict";', "")
        values = {
            "title": html.escape(self.title), "style": _asset("style.css"), "scene": text,
            "numbers": stream.text(), "scripts": scripts,
        }  # fmt: skip
        page = _asset("page.html")
        for name, value in values.items():
            page = page.replace("{{ " + name + " }}", value, 1)
        return page

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        style = "width:100%;border:1px solid #ddd"
        return f'<iframe srcdoc="{page}" height="{_HEIGHT}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        joints = [x.group.removeprefix("force of ") for x in self.items if x.kind == "arrow"]
        forces = f", forces of {', '.join(joints)}" if joints else ""
        return f"View: {extent(self.ts, self.fps, self.speed)}{forces}"


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def view(
    subject: Model | Mechanism | Robot | Geometry,
    motion: Solution | tuple[Any, Any],
    params: Any = None,
    *,
    file: str | Path | None = None,
    show: bool | None = None,
    forces: bool = True,
    force_scale: float | None = None,
    speed: float | None = None,
    fps: float = 30.0,
    trails: Sequence[str] | None = None,
) -> "View":
    """View a motion in three dimensions in the browser, with a player.

    The page has the shapes of `animate`. It can be turned, moved (with shift) and zoomed, and has a
    button to play and pause (or the space bar), a slider for the time and a choice of speeds. The
    first picture frames the whole motion. A click on a body shows its name, mass and coordinates;
    "follow" lets the camera move along, and "parts" hides single parts. Of several trajectories the
    first is shown in full and the others as ghosts. Arrows are the forces that the joints of a
    mechanism exert on their second bodies, in the first trajectory.

    The page is one file with everything in it, and needs neither a server nor the network.

    Args:
        subject: as for `animate`. Only a mechanism or a robot has forces.
        motion: as for `animate`.
        params: as for `animate`.
        file: an .html file to write.
        show: whether to open the page in the browser; by default without a `file`, except in a
            notebook, which shows the returned object.
        forces: whether to show the forces of joints.
        force_scale: length of an arrow per force [m/N]; by default such that the longest are a
            third of the size of the mechanism.
        speed: as for `animate`.
        fps: frames per second.
        trails: as for `animate`.

    Returns:
        A `View`: `save("arm.html")` writes the page, `open()` opens it.

    Raises:
        TypeError, ValueError: as for `animate`, or if `file` does not end in .html.
        FileNotFoundError: if the folder of `file` does not exist.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model, ts = jm.models.double_pendulum(), jnp.linspace(0.0, 3.0, 61)
        >>> swing = jm.simulate(model.system, *model.initial(), ts, model.params)
        >>> jm.view(model, swing, show=False)
        View: t = 0 ... 3 s in real time, 91 frames in 3 s
    """
    if file is not None:
        file_path("file", file, ".html")
    if force_scale is not None:
        require_positive("force_scale", force_scale)
    title = getattr(subject, "name", "motion")
    subject = getattr(subject, "mechanism", subject)  # of a robot
    display = display_of(subject, motion, params, trails, speed=speed, fps=fps)
    box = box_around(display.shapes)
    items, scale, facts, down = [*items_of(display.shapes, box, display.trails)], 0.0, {}, None
    if isinstance(subject, Mechanism):
        facts = _facts(subject, display)
        if any(isinstance(force, gravity) for force in subject.forces):
            down = np.asarray(down_of(subject, display.times[0], display.first_params), float)
            down = np.pad(down, (0, 3 - len(down)))
        if forces and display.solution is not None:
            arrows, scale = _arrows(subject, display, box, force_scale)
            items += arrows
            # The first picture frames the arrows too.
            known = [x.points[np.isfinite(x.points).all(axis=(1, 2))] for x in arrows]
            ends = [x.reshape(-1, 3)[:: max(1, len(x) // FRAMED)] for x in known]
            box = replace(box, outermost=np.concatenate([box.outermost, *ends]))
    result = View(
        display.times,
        fps,
        display.speed,
        tuple(items),
        box,
        facts,
        title,
        display.label,
        scale,
        down,
    )
    if file is not None:
        result.save(file)
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_notebook = hasattr(shell, "kernel")  # which shows the result by itself
    if show or (show is None and file is None and not is_notebook):
        result.open()
    return result
