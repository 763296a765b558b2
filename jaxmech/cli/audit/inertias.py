"""Inertias that no body can have, read from a model before MuJoCo refuses or changes them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

SHARE = 1e-6  # of the largest principal moment that a moment may be off the triangle inequality


@dataclass(frozen=True)
class Flaw:
    """What is wrong with the mass or inertia of a body."""

    body: str
    fault: str


def flaws(spec: Any) -> list[Flaw]:
    """The flaws of all inertials that are stated in a model.

    The principal moments of a body satisfy A + B >= C, since each is an integral over two of the
    three squares x^2, y^2 and z^2.
    """
    return [
        Flaw(body.name or f"body{k}", fault)
        for k, body in enumerate(spec.bodies)
        if body.explicitinertial
        for fault in _of_body(float(body.mass), _moments(body))
    ]


def _moments(body: Any) -> np.ndarray:
    """The principal moments of a body in ascending order."""
    xx, yy, zz, xy, xz, yz = np.asarray(body.fullinertia)
    if np.isnan(xx):
        return np.sort(np.asarray(body.inertia))
    return np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _of_body(mass: float, moments: np.ndarray) -> list[str]:
    principal = "principal moments " + ", ".join(f"{moment:.4g}" for moment in moments)
    faults = []
    if mass < 0:
        faults.append(f"mass {mass:g} kg is negative")
    if mass == 0 and moments.any():
        faults.append("inertia without mass")
    if moments[0] < -SHARE * np.abs(moments).max():
        faults.append(f"{principal} kg m^2 are not all positive")
    elif moments[0] + moments[1] < (1 - SHARE) * moments[2]:
        faults.append(f"{principal} kg m^2: the largest exceeds the sum of the others")
    return faults
