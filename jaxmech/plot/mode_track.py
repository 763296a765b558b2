"""The motion of a mode: its shape about an equilibrium, projected onto the constraints."""

import numpy as np

from jaxmech.analysis import Equilibrium, Modes, levels, modes, smallest_change
from jaxmech.geometry import Geometry
from jaxmech.plot.paths import Track, bounds, moving, points_of, shapes_at
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_positive

_SAVES = 65  # states per period
_TIMES = 3.0  # exponent of e by which a motion without oscillation grows or decays
_STEPS = 6  # Newton steps onto the constraints


def mode_track(
    geometry: Geometry, system: System, equilibrium: Equilibrium, mode: int, amplitude: float,
    params: Params,
) -> tuple[Track, str]:  # fmt: skip
    """A period of a mode as a motion, with its name.

    An oscillation is shown at constant amplitude, even if it is damped or grows; a mode without
    oscillation grows or decays. The largest displacement of a point is the amplitude times the size
    of the moving shapes.
    """
    if np.ndim(equilibrium.q) != 1:
        raise ValueError("Argument `motion` must be one equilibrium to show a mode, not a batch.")
    require_positive("amplitude", amplitude)
    spectrum = modes(equilibrium.linearization)
    value, shape = _chosen(spectrum, mode)
    oscillates = value.imag != 0
    if oscillates:
        ts = np.linspace(0.0, 2 * np.pi / value.imag, _SAVES)
        change = np.exp(1j * value.imag * ts)
    else:
        ts = np.linspace(0.0, _TIMES / abs(value.real), _SAVES)
        change = np.exp(value.real * ts - (_TIMES if value.real > 0 else 0.0))
    away = (shape[None] * change[:, None]).real
    scale = _scale(geometry, np.asarray(equilibrium.q), away, params)
    q, at_rest = np.asarray(equilibrium.q) + amplitude * scale * away, np.zeros_like(away)
    for _ in range(_STEPS):
        q = q - smallest_change(*levels(system, q, at_rest, at_rest[:, 0], params)[0])
    rates = np.gradient(q, ts, axis=0)
    ratio = -value.real / abs(value)
    name = f"{value.imag / (2 * np.pi):.4g} Hz, damping ratio {ratio + 0.0:.3g}"
    if not oscillates:
        name = f"{'grows' if value.real > 0 else 'decays'} at {abs(value.real):.4g} per second"
    return Track(ts[None], q[None], rates[None]), name


def _chosen(spectrum: Modes, mode: int) -> tuple[complex, np.ndarray]:
    """The eigenvalue and shape of a mode, counted in the order in which modes are printed."""
    values = np.asarray(spectrum.eigenvalues)
    vibrations = np.flatnonzero((values.imag >= 0) & ~np.asarray(spectrum.zero))
    if not 0 <= mode < len(vibrations):
        raise ValueError(
            f"Argument `mode` must be the number of a mode from 0 to {len(vibrations) - 1}, in the "
            f"order in which `modes` are printed, but is {mode}."
        )
    return complex(values[vibrations[mode]]), np.asarray(spectrum.shapes)[:, vibrations[mode]]


def _scale(geometry: Geometry, q: np.ndarray, away: np.ndarray, params: Params) -> float:
    small = 1e-4 / max(float(np.abs(away).max()), 1e-300)
    states = np.concatenate([q[None], q + small * away])
    ts = np.arange(len(states), dtype=float)
    track = Track(ts[None], states[None], np.zeros_like(states)[None])
    shapes = shapes_at(geometry, track, ts, params, batched=False)
    in_motion = moving(shapes)
    points = [points_of(shape) for shape in in_motion.values()]
    sizes = [float(np.linalg.norm(x - x[:, :1], axis=-1).max()) for x in points]
    largest = max(sizes, default=0.0)
    low, high = bounds(in_motion or shapes)
    size = float((high - low).max())
    return small * (size if size > 10 * largest else 1.0) / (largest or 1.0)
