"""`audit`: everything that `jaxmech audit` says about a file."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.analysis import Severity, Structure, structure
from jaxmech.cli.audit.deviation import Deviation, deviation
from jaxmech.interop.mujoco import (
    IgnoredElementsWarning,
    Robot,
    compiled,
    from_mjcf,
    spec_of,
    text_of,
    unknown_elements,
)
from jaxmech.state import assemble
from jaxmech.system import violations
from jaxmech.utils.text import titled_lines

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


MOST_BODIES = 5  # in the table of deviations


@dataclass(frozen=True)
class FileAudit:
    """What was found in a file.

    Attributes:
        name: name of the file.
        flaws: inertias that no body can have.
        robot: the mechanism; None if the inertias allow none.
        structure: its structure at the start.
        keyframes: by keyframe, the violated loops with the sizes of their residuals.
        deviation: soft loops and limits against rigid ones; None without any.
        refusal: why there is no mechanism.
    """

    name: str
    flaws: list[Flaw]
    robot: Robot | None = None
    structure: Structure | None = None
    keyframes: dict[str, list[str]] | None = None
    deviation: Deviation | None = None
    refusal: str = ""

    @property
    def serious(self) -> bool:
        """Whether something in the file is wrong."""
        failed = self.deviation is not None and bool(self.deviation.failure)
        open_loops = any((self.keyframes or {}).values())
        of_structure = self.structure is not None and self.structure.serious
        return bool(self.flaws or self.refusal) or failed or open_loops or of_structure

    def __str__(self) -> str:
        rows = [("inertias", f"{flaw.body}: {flaw.fault}") for flaw in self.flaws]
        rows = rows or [("inertias", "all physical")]
        rows += [("refused", self.refusal)] if self.refusal else []
        if self.robot is not None and self.structure is not None:
            rows += _of_structure(self.robot, self.structure)
        for name, open_loops in (self.keyframes or {}).items():
            rows.append(("keyframes", f"{name}: {'; '.join(open_loops) or 'consistent'}"))
        lines = [self.name, *titled_lines(rows, 14)]
        if self.structure is not None:
            findings = self.structure.findings
            lines += [str(f) for f in findings if f.severity == Severity.SERIOUS]
        return "\n".join(lines + (_table(self.deviation) if self.deviation else []))


def _of_structure(robot: Robot, at_start: Structure) -> list[tuple[str, str]]:
    rows = [("coordinates", f"{len(at_start.coordinates)}: {', '.join(at_start.coordinates)}")]
    count = sum(c.equations for c in at_start.constraints)
    if at_start.ranks is not None:
        r = at_start.ranks
        rows.append(("freedoms", f"{r.position_freedom}"))
        rows.append(("equations", f"{count}, of which {r.nearby} are independent"))
        for dependence in r.redundant:
            equivalents = [name for name in dependence.others if name != dependence.name]
            also = f", given {', '.join(equivalents)}" if equivalents else ""
            rows.append(("redundant", f"{len(dependence.equations)} of {dependence.name}{also}"))
        rows += [("redundant", f"1 or more of {name}, across the loop") for name in r.silent]
    rows += [("left out", f"{kind}: {', '.join(x)}") for kind, x in robot.ignored.items()]
    return rows


def _table(comparison: Deviation) -> list[str]:
    """How far MuJoCo is off, the largest gaps and distances first."""
    seconds = f"{comparison.ts[-1]:g} s"
    soft = [
        word
        for word, part in (
            ("loops", comparison.gaps),
            ("limits", comparison.limits),
            ("friction", comparison.creeps),
        )
        if part
    ]
    what = f"soft {' and '.join(soft)}" if soft else "motion"
    lines = [f"MuJoCo's {what} against rigid ones over {seconds}, without contacts"]
    if comparison.failure:
        return [*lines, f"  the rigid motion ends with status {comparison.failure}"]
    if comparison.gaps:
        lines.append(f"  {'loop':<30} {'largest gap':>12} {'at the end':>12}   [m, rad]")
        lines += [_row(name, gap) for name, gap in comparison.gaps.items()]
    if comparison.limits:
        columns = f"{'beyond by':>12} {'at the end':>12} {'reached at':>12} {'rigid':>12}"
        lines.append(f"  {'limit':<30} {columns}   [m, rad, s]")
        lines += [
            f"{_row(name, limit.penetration)} {_time(limit.soft)} {_time(limit.rigid)}"
            for name, limit in comparison.limits.items()
        ]
    if comparison.creeps:
        lines.append(f"  {'frictionloss':<30} {'creeps by':>12} {'per second':>12}   [m, rad]")
        lines += [
            f"  {name:<30} {creep.way:12.2e} {creep.way / creep.seconds:12.2e}"
            for name, creep in comparison.creeps.items()
        ]
    lines.append(f"  {'body':<30} {'off by':>12} {'at the end':>12}   [m]")
    largest = sorted(comparison.distances, key=lambda name: -comparison.distances[name].max())
    lines += [_row(name, comparison.distances[name]) for name in largest[:MOST_BODIES]]
    lines.append(
        f"  rigid motion: constraints off by at most {comparison.residual:.1e}, integration error "
        f"about {comparison.error:.0e} of the motion"
    )
    return lines


def _time(t: float) -> str:
    return f"{t:12.5f}" if np.isfinite(t) else f"{'never':>12}"


def _row(name: str, values: np.ndarray) -> str:
    return f"  {name:<30} {values.max():12.2e} {values[-1]:12.2e}"


def audit(file: str | Path, seconds: float = 1.0) -> FileAudit:
    """Examine an MJCF or URDF file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a model.
    """
    spec, category = spec_of(file)
    faults = flaws(spec)
    spec.compiler.balanceinertia = True  # which `faults` has, so that the rest can be seen
    try:
        model = compiled(spec, category)
    except ValueError as error:
        if not faults:
            raise
        return FileAudit(Path(file).name, faults, refusal=str(error))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredElementsWarning)  # they are part of the report
        robot = from_mjcf(spec, limits=True)
    if elements := unknown_elements(text_of(file)):
        robot = replace(robot, ignored={**robot.ignored, "unknown element": elements})
    q, v, params = _start(robot)
    system = robot.mechanism.system
    at_start = structure(system, q, v, 0.0, params)
    is_soft = system.unilateral or any(not c.name.endswith(".unit") for c in system.constraints)
    comparison = deviation(robot, model, q, v, params, seconds) if is_soft else None
    return FileAudit(Path(file).name, faults, robot, at_start, _keyframes(robot), comparison)


def _start(robot: Robot) -> tuple[Any, Any, Any]:
    """The first keyframe, or the reference pose, on the constraints; and the parameters."""
    q, v = robot.start
    params = dict(robot.mechanism.params)
    for keyframe in list(robot.keyframes.values())[:1]:
        q, v = keyframe.q, keyframe.v
        params |= keyframe.ctrl
    return *assemble(robot.mechanism.system, q, v, 0.0, params), params


def _keyframes(robot: Robot) -> dict[str, list[str]]:
    """By keyframe, the loops that it violates."""
    system, params = robot.mechanism.system, robot.mechanism.params
    return {
        name: [
            f"{violation.name} is off by {violation.size:.2g} at the level of its {violation.level}"
            for violation in violations(system, *system.arguments(k.q, k.v, 0.0, params))
        ]
        for name, k in robot.keyframes.items()
    }
