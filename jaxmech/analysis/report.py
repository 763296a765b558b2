"""`Structure`: the report of `structure`."""

from dataclasses import dataclass

from jaxmech.analysis.findings import Finding, Severity
from jaxmech.analysis.mass import MassMatrix
from jaxmech.analysis.redundancy import Dependence, Ranks
from jaxmech.system import Violation
from jaxmech.utils.text import titled_lines


@dataclass(frozen=True)
class Equations:
    """The name, the kind and the number of equations of a constraint."""

    name: str
    kind: str
    equations: int


@dataclass(frozen=True, repr=False)
class Structure:
    """The result of `structure`, which prints itself as a report.

    Attributes:
        coordinates: names of the coordinates.
        constraints: name, kind and number of equations of each.
        ranks: independent and dependent equations by name, degrees of freedom, conditioning; None
            if the functions of the system are not finite.
        mass: rank and conditioning of M, and whether [M; A] has full column rank; None likewise.
        violations: constraints that the given state does not satisfy.
        unused: parameters that do not affect the motion.
        findings: problems and facts with remedies, the serious ones first.
        states: names of the states of first order, which are no degrees of freedom.
    """

    coordinates: tuple[str, ...]
    constraints: tuple[Equations, ...]
    ranks: Ranks | None = None
    mass: MassMatrix | None = None
    violations: tuple[Violation, ...] = ()
    unused: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    states: tuple[str, ...] = ()

    @property
    def serious(self) -> bool:
        """Whether a finding makes results wrong."""
        return any(finding.severity == Severity.SERIOUS for finding in self.findings)

    @property
    def redundant(self) -> tuple[Dependence, ...]:
        """Equations that follow from others, by name."""
        return self.ranks.redundant if self.ranks else ()

    def __repr__(self) -> str:
        card = ["Structure", *titled_lines(_facts(self), 14)]
        return "\n".join([*card, *(str(finding) for finding in self.findings)])


def _facts(structure: Structure) -> list[tuple[str, str]]:
    names = structure.coordinates[: len(structure.coordinates) - len(structure.states)]
    lines = [("coordinates", f"{len(names)}: {', '.join(names)}")]
    lines += (
        [("states", f"{len(structure.states)}: {', '.join(structure.states)}")]
        if structure.states
        else []
    )
    for kind in ("Holonomic", "Nonholonomic", "Acceleration"):
        labels = [f"{c.name} ({c.equations})" for c in structure.constraints if c.kind == kind]
        lines += [(kind.lower(), ", ".join(labels))] if labels else []
    rows = sum(c.equations for c in structure.constraints)
    if structure.ranks and structure.mass:
        r, m = structure.ranks, structure.mass
        rank_phrase = "lacks full" if m.undetermined else "has full"
        lines += [
            ("freedom", f"{r.position_freedom} of position, {r.velocity_freedom} of velocity"),
            (
                "independent",
                f"{r.here} of {rows} equations here, {r.nearby} "
                + ("to second order" if r.rigid else "nearby"),
            ),
            ("condition", f"M {m.condition:.2g}, A M^-1 A^T {r.condition:.2g}, both scaled"),
            (
                "mass",
                f"rank {m.rank} of {len(structure.coordinates)}; [M; A] {rank_phrase} column rank",
            ),
            ("state", "violates constraints" if structure.violations else "consistent"),
        ]
    serious = sum(finding.severity == Severity.SERIOUS for finding in structure.findings)
    lines.append(("findings", f"{len(structure.findings)}, of which {serious} serious"))
    return lines
