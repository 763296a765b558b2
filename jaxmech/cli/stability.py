"""The commands `jaxmech modes` and `jaxmech equilibria`: results as text, JSON and pictures."""

import json
from argparse import Namespace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.analysis import (
    Equilibria,
    Equilibrium,
    Modes,
    Stability,
    equilibria,
    equilibrium,
    modes,
)
from jaxmech.cli.resolve import StateError, SystemInState
from jaxmech.models import Model

MOST_MODES = 6  # modes of which an animation is written
STARTS = 40  # random ones, if there is no equilibrium near the state
MOST_POSES = 8  # equilibria that are drawn


def show_modes(loaded: SystemInState, arguments: Namespace) -> str:
    """Make the output of `jaxmech modes`, after writing its pictures."""
    state, remark = _found(loaded, steady=arguments.steady)
    eigenmodes = modes(state.linearization)
    files = _draw_modes(loaded, state, eigenmodes, Path(arguments.out)) if arguments.out else []
    if arguments.json:
        near = {"near_state": not remark}
        return json.dumps(_of_state(loaded, state) | near | _of_modes(eigenmodes), indent=2)
    return f"{remark}{state}\n{eigenmodes}{_names_of(files, arguments)}"


def _names_of(files: list[str], arguments: Namespace) -> str:
    return f"\npictures in {arguments.out}: {', '.join(files)}" if arguments.out else ""


def _found(loaded: SystemInState, *, steady: bool) -> tuple[Equilibrium, str]:
    """The equilibrium near the state, or else that of lowest energy, and a remark on it."""
    system, params = loaded.system, loaded.params
    v = loaded.v if steady else None
    try:
        return equilibrium(system, loaded.q, params, t=loaded.t, v=v), ""
    except ValueError as error:
        if steady:
            raise StateError(f"{loaded.name}: {error}") from error
        try:
            candidates = equilibria(system, loaded.q, params, t=loaded.t, starts=STARTS)
        except ValueError:
            raise StateError(f"{loaded.name}: {error}") from error
    remark = (
        f"there is no equilibrium near the state; of {len(candidates.found)} found from {STARTS} "
        "random starts, this one has the lowest energy (--start chooses another, `jaxmech "
        "equilibria` lists them)\n"
    )
    return candidates.found[0], remark


def show_equilibria(loaded: SystemInState, arguments: Namespace) -> str:
    """Make the output of `jaxmech equilibria`, after drawing them."""
    options = {"starts": arguments.starts, "spread": arguments.spread, "seed": arguments.seed}
    try:
        all_of_them = equilibria(loaded.system, loaded.q, loaded.params, t=loaded.t, **options)
    except ValueError as error:
        raise StateError(f"{loaded.name}: {error}") from error
    files = _draw_poses(loaded, all_of_them, Path(arguments.out)) if arguments.out else []
    if not arguments.json:
        return f"{all_of_them!r}{_names_of(files, arguments)}"
    figures = zip(all_of_them.found, all_of_them.energies, all_of_them.hits, strict=True)
    rows = [
        _of_state(loaded, state) | {"energy": energy, "hits": n} for state, energy, n in figures
    ]
    return json.dumps({"starts": all_of_them.starts, "equilibria": rows}, indent=2)


def _of_state(loaded: SystemInState, state: Equilibrium) -> dict[str, Any]:
    """An equilibrium in plain numbers, by name."""
    names = state.coordinates
    return {
        "system": loaded.name,
        "q": dict(zip(names, map(float, state.q), strict=True)),
        "v": dict(zip(names, map(float, state.v), strict=True)),
        "reactions": {name: [float(x) for x in force] for name, force in state.reactions.items()},
        "stability": Stability(int(state.stability)).name,
        "index": int(state.index),
    }


def _of_modes(eigenmodes: Modes) -> dict[str, Any]:
    def number(x: Any) -> float | None:
        return float(x) if isfinite(x) else None  # JSON has no NaN

    return {
        "growth": float(eigenmodes.growth),
        "modes": [
            {
                "eigenvalue": [float(value.real), float(value.imag)],
                "frequency": float(eigenmodes.frequencies[k]),
                "damping": number(eigenmodes.damping[k]),
                "zero": bool(eigenmodes.zero[k]),
                "shape": {
                    name: [float(x.real), float(x.imag)]
                    for name, x in zip(
                        eigenmodes.coordinates, np.asarray(eigenmodes.shapes)[:, k], strict=True
                    )
                },
            }
            for k, value in enumerate(np.asarray(eigenmodes.eigenvalues))
        ],
    }


def _draw_modes(
    loaded: SystemInState, state: Equilibrium, eigenmodes: Modes, folder: Path
) -> list[str]:
    """Draw the pictures of modes, and if the model has a geometry, an animation of each."""
    from jaxmech.plot import animate, poles, save, single
    from jaxmech.plot import modes as draw_shapes

    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for name, draw in (("poles", poles), ("shapes", draw_shapes)):
        figure, ax = single()
        draw(eigenmodes, ax=ax)
        figures.append((name, loaded.name, figure))
    files = [file.name for file in save(figures, folder)]
    model = _drawable(loaded)
    if model is None:
        return files
    oscillating = (np.asarray(eigenmodes.eigenvalues).imag >= 0) & ~np.asarray(eigenmodes.zero)
    for mode in range(min(int(oscillating.sum()), MOST_MODES)):
        path = folder / f"mode{mode}.gif"
        animate(model, state, loaded.params, mode=mode).save(path, dpi=70.0)
        files.append(path.name)
    return files


def _draw_poses(loaded: SystemInState, all_of_them: Equilibria, folder: Path) -> list[str]:
    """The equilibria of a model that has a geometry, side by side."""
    from jaxmech.plot import animate, save

    model = _drawable(loaded)
    if model is None:
        raise StateError(
            f"{loaded.name} has no geometry to be drawn by; leave out --out, or make it a Model "
            "with `geometry=`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    figures = []
    for k, state in enumerate(all_of_them.found[:MOST_POSES]):
        q = np.stack([state.q, state.q])
        scene = animate(model, (np.array([0.0, 1.0]), q), loaded.params, trails=())
        verdict = Stability(int(state.stability)).name.lower().replace("_", " ")
        scene.draw(0.0).set_title("")
        scene.ax.set_title("", loc="left")
        title = f"{verdict}, {all_of_them.energies[k]:.5g} J"
        figures.append((f"equilibrium{k}", title, scene.figure))
    return [file.name for file in save(figures, folder)]


def _drawable(loaded: SystemInState) -> Model | None:
    """The model, if it has a geometry."""
    return loaded.model if loaded.model is not None and loaded.model.geometry else None
