"""Constraint equations that follow from others, by name, at a state and nearby.

Rows are processed in the order in which the constraints are written. A row in the span of the rows
kept so far is dependent. Since the kept rows are independent, its coefficients on them are unique,
and so are the constraints on which it depends.

Where the rank drops in a pose, a motion that is possible to first order may not be possible to
second order. A velocity u of the null space of A belongs to a motion only if A w = -phi''(u, u) has
a solution w, that is, if s . phi''(u, u) = 0 for every s with A^T s = 0. Where such a form is
definite on the null space the pose is rigid, although A leaves it a velocity (Connelly and Whiteley
1996): a point between two rods in one line moves like this, and a Stewart platform in Fichter's
pose.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.optimize import minimize

from jaxmech.analysis.findings import Finding, listed, note, serious, warning
from jaxmech.analysis.states import SPREAD, Pose
from jaxmech.compiler import native_program
from jaxmech.linalg import unit
from jaxmech.system import Holonomic, Nonholonomic, Params, System, mass_scale
from jaxmech.utils.arrays import HostArray

COMBINATIONS = 200  # of several forms, among which a semidefinite one is sought
LARGE = 0.3  # part of the largest rate, of coordinates that are named as moving
NEAR_SINGULAR = 1e-3  # largest relative size of the weakest direction in a nearly singular pose
VANISHING = 0.1  # part of its usual length that a row which vanishes on the constraints keeps


@dataclass(frozen=True)
class Dependence:
    """Equations of one constraint that follow from those before them.

    The entries of `Structure.redundant`, see `structure`.

    Attributes:
        name: the constraint.
        equations: indices of its equations, counted from 0.
        others: the constraints of which they are combinations, in system order, possibly the
            constraint itself; empty if an equation does not depend on the coordinates at all.
    """

    name: str
    equations: tuple[int, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Independence:
    """A partition of the rows into independent and dependent ones."""

    independent: tuple[int, ...]  # indices of the independent rows
    combinations: dict[int, NDArray[np.floating]]  # coefficients of the others on the kept rows

    @property
    def rank(self) -> int:
        return len(self.independent)


def independence(C: HostArray, tolerance: float) -> Independence:
    """Sort the rows of C, of unit length or zero, by Gram-Schmidt done twice."""
    basis = np.zeros((0, C.shape[1]))
    independent: list[int] = []
    combinations = {}
    for number, row in enumerate(C):
        remainder = row - basis.T @ (basis @ row)
        remainder = remainder - basis.T @ (basis @ remainder)
        length = np.linalg.norm(remainder)
        if length > tolerance:
            basis = np.vstack([basis, remainder / length])
            independent.append(number)
        else:
            combinations[number] = np.linalg.lstsq(C[independent].T, row, rcond=None)[0]
    width = len(independent)
    padded = {k: np.pad(x, (0, width - x.size)) for k, x in combinations.items()}
    return Independence(tuple(independent), padded)


def dependences(
    rows: Independence, names: Sequence[str], sizes: Sequence[int]
) -> tuple[Dependence, ...]:
    """Group the dependent rows by the names of their constraints."""
    owner, index = owners(names, sizes)
    by_owner: dict[str, tuple[list[int], set[str]]] = {}
    for row, x in rows.combinations.items():
        indices, partners = by_owner.setdefault(owner[row], ([], set()))
        indices.append(index[row])
        least = 1e-6 * np.abs(x).max(initial=0.0)
        partners.update(
            owner[k] for k, c in zip(rows.independent, x, strict=True) if abs(c) > least
        )
    return tuple(
        Dependence(name, tuple(indices), tuple(n for n in names if n in partners))
        for name, (indices, partners) in by_owner.items()
    )


def owners(names: Sequence[str], sizes: Sequence[int]) -> tuple[list[str], list[int]]:
    """The name of the constraint of every row, and the index of the row in it."""
    pairs = [(name, k) for name, size in zip(names, sizes, strict=True) for k in range(size)]
    return [name for name, _ in pairs], [k for _, k in pairs]


class SecondOrder(NamedTuple):
    """The velocities that A allows at a pose, examined to second order.

    Attributes:
        blocked: number of independent velocities that no motion has.
        moving: names of the coordinates that have them.
        is_decided: whether every other velocity can be continued to second order.
    """

    blocked: int = 0
    moving: tuple[str, ...] = ()
    is_decided: bool = True


def second_order(
    system: System, pose: Pose, generic_poses: Sequence[Pose], tolerance: float
) -> SecondOrder:
    """Examine the null space of the constraints on positions at a pose."""
    scale = mass_scale(pose.metric)
    rows, lengths = unit(pose.A_position / scale)
    usual = np.max([unit(p.A_position / scale)[1] for p in generic_poses], axis=0)
    used = lengths > tolerance * usual  # others, as those of a square, have findings of their own
    rank = independence(rows[used], tolerance).rank
    mechanical = system.dynamics.mechanical
    if rank == used.sum() or rank == mechanical:
        return SecondOrder()
    U, _, V = np.linalg.svd(rows[used][:, :mechanical])
    stresses, directions = U[:, rank:], (V[rank:] / scale[:mechanical]).T
    directions = np.vstack([directions, np.zeros((system.n - mechanical, directions.shape[1]))])
    q, _, t, params = pose.state
    bent = np.asarray(_bent(system, directions.astype(q.dtype), q, t, params), float)
    bent = bent[used] / lengths[used, None, None]
    forms = np.einsum("ms,mab->sab", stresses, bent)
    small = tolerance**0.5 * np.abs(bent).max()  # a stress may be zero where a constraint bends
    free = _free_of(forms, small)
    left = np.abs(free.T @ forms @ free).max(initial=0.0)
    blocked = forms.shape[1] - free.shape[1]
    lost = np.linalg.svd(free.T)[2][free.shape[1] :] if free.size else np.eye(forms.shape[1])
    part = np.linalg.norm(directions @ lost.T * scale[:, None], axis=1)
    moving = [
        name
        for name, x in zip(system.coordinates, part, strict=True)
        if blocked and x > LARGE * part.max()
    ]
    return SecondOrder(blocked, tuple(moving), bool(left <= small))


def _free_of(forms: HostArray, small: float) -> HostArray:
    """The largest subspace found on which no combination of the forms is semidefinite, (f, k)."""
    draw = np.random.default_rng(3)
    count = len(forms)
    weights = np.concatenate([np.eye(count), draw.normal(size=(COMBINATIONS * (count > 1), count))])
    weights = np.concatenate([weights, -weights])
    free = np.eye(forms.shape[1])
    for _ in range(forms.shape[1]):
        left = free.T @ forms @ free
        if np.abs(left).max(initial=0.0) <= small:
            break

        def indefinite(weights: HostArray, left: HostArray = left) -> Any:
            """How far combinations are from semidefinite ones: minus the least eigenvalue."""
            combined = np.einsum("...s,sab->...ab", weights, left)
            size = np.maximum(np.linalg.norm(combined, axis=(-2, -1)), small)
            return -np.linalg.eigvalsh(combined)[..., 0] / size

        # Beside a semidefinite combination the eigenvalue is as small as the square of the
        # distance, and the directions that it leaves free are off by the distance itself.
        start = weights[np.argmin(indefinite(weights))]
        best = minimize(indefinite, start, method="Nelder-Mead", options={"xatol": 1e-10}).x
        sizes, vectors = np.linalg.eigh(np.einsum("s,sab->ab", best / np.linalg.norm(best), left))
        if sizes[0] < -small or sizes[-1] <= small:
            break
        free = free @ vectors[:, sizes <= small]
    return free


@native_program("system")
def _bent(system: System, directions: Array, q: Array, t: Array, params: Params) -> Array:
    """The second derivatives of the constraints on positions along directions, (m, f, f)."""

    def level(x: Array) -> Array:
        return system.dynamics.position_level(q + directions @ x, t, params)

    return jax.jacfwd(jax.jacfwd(level))(jnp.zeros(directions.shape[1], q.dtype))


@dataclass(frozen=True)
class Ranks:
    """The ranks of A at a state, around it and off the constraints, and their consequences.

    Attributes:
        here: number of independent equations at the state.
        nearby: number at states nearby on the constraints; more than `here` in a singular pose. In
            one that is rigid, which has none, the number that is not free to second order.
        anywhere: number at states nearby off the constraints; more than `nearby` if a redundancy
            depends on the values of the parameters.
        position_freedom: number of coordinates that the holonomic constraints leave free nearby.
        velocity_freedom: number of velocities that these and the nonholonomic ones leave free.
        redundant: equations that follow from others wherever the constraints hold.
        only_here: equations that follow from others at this state alone.
        fragile: names of the constraints that are redundant only where the constraints hold.
        flat: constraints whose gradient vanishes wherever they hold.
        silent: constraints that do not depend on the coordinates at all.
        condition: condition number of A M^-1 A^T with rows scaled, over the independent ones.
        nearly_singular: whether accelerations lose too many digits.
        rigid: coordinates that have a velocity at the state, but no motion.
        is_decided: whether it is known that the other velocities belong to motions.
    """

    here: int
    nearby: int
    anywhere: int
    position_freedom: int
    velocity_freedom: int
    redundant: tuple[Dependence, ...]
    only_here: tuple[Dependence, ...]
    fragile: tuple[str, ...]
    flat: tuple[str, ...]
    silent: tuple[str, ...]
    condition: float
    nearly_singular: bool
    rigid: tuple[str, ...] = ()
    is_decided: bool = True


def ranks(
    system: System,
    sizes: Sequence[int],
    pose: Pose,
    around: Sequence[Pose],
    generic_poses: Sequence[Pose],
    tolerance: float,
) -> Ranks:
    """The ranks of A at a state, around it, and off the constraints."""
    names = [c.name for c in system.constraints]
    # The gradient of a square is zero here, and nearby, where the constraints hold to round-off, it
    # is much smaller than off them. At the apex of a cone it is zero here alone.
    usual, poses = np.max([p.lengths for p in generic_poses], axis=0), (pose, *around)
    vanishes = pose.lengths <= tolerance * usual
    for p in around:
        vanishes = vanishes & (p.lengths <= VANISHING * usual)
    rows = [p.rows * ~(vanishes | (p.lengths <= tolerance * usual))[:, None] for p in poses]
    independences = [independence(matrix, tolerance) for matrix in rows]
    best = max(range(len(rows)), key=lambda k: independences[k].rank)
    at_state, on_constraints, free = (
        independences[0],
        independences[best],
        independence(generic_poses[0].rows, tolerance),
    )
    bent = SecondOrder()
    if at_state.rank < free.rank:
        bent = second_order(system, pose, generic_poses, tolerance)
    # A rigid pose seems to move by the square root of round-off; in a motion that leaves the pose
    # the blocked velocities are none, and the lost rows show as clearly as the pose has changed.
    if max(independence(x, SPREAD / 2).rank for x in rows) >= at_state.rank + bent.blocked:
        bent = SecondOrder(is_decided=bent.is_decided)
    if bent.blocked:  # what is redundant shows off the constraints alone
        best, on_constraints = 0, free
    present, always, anywhere = (
        dependences(x, names, sizes) for x in (at_state, on_constraints, free)
    )
    zero = [d.name for d in always if not d.others]
    zero_anywhere = {d.name for d in anywhere if not d.others}
    redundant = tuple(d for d in always if d.others)
    kinds = np.array(owners([type(c).__name__ for c in system.constraints], sizes)[0])
    of_position = kinds == Holonomic.__name__
    of_velocity = of_position | (kinds == Nonholonomic.__name__)
    position_freedom, velocity_freedom = (
        system.dynamics.mechanical - independence(rows[best][chosen], tolerance).rank
        for chosen in (of_position, of_velocity)
    )
    # Of the Gram matrix of the rows, over the independent ones.
    sizes_here = np.linalg.svd(rows[0], compute_uv=False)
    least = sizes_here[at_state.rank - 1] if at_state.rank else np.inf
    condition = float((sizes_here[0] / least) ** 2) if at_state.rank else 1.0
    return Ranks(
        here=at_state.rank,
        nearby=at_state.rank + bent.blocked if bent.blocked else on_constraints.rank,
        anywhere=free.rank,
        position_freedom=position_freedom - bent.blocked,
        velocity_freedom=velocity_freedom - bent.blocked,
        redundant=redundant,
        only_here=tuple(d for d in present if d not in always)
        if at_state.rank < on_constraints.rank
        else (),
        fragile=tuple(d.name for d in redundant if d.name not in {x.name for x in anywhere}),
        flat=tuple(name for name in zero if name not in zero_anywhere),
        silent=tuple(name for name in zero if name in zero_anywhere),
        condition=condition,
        # From the second bound on, LDL is about to drop a row: its pivots are squared lengths.
        nearly_singular=condition > min(NEAR_SINGULAR**-2, tolerance ** (-4 / 3) / 4),
        rigid=bent.moving,
        is_decided=bent.is_decided or len(around) > 0,
    )


def rank_findings(counts: Ranks, contradictory: Collection[str]) -> list[Finding]:
    """Findings on the ranks; the redundancy of contradictory constraints is not reported."""
    findings = [
        note(
            clause_of(d),
            "harmless: accelerations and the sum of the constraint forces are unique; single "
            "multipliers are not (those of minimum norm are returned); keep it",
        )
        for d in counts.redundant
        if d.name not in contradictory
    ]
    if counts.fragile:
        problem = (
            f"{listed(counts.fragile)} {'is' if len(counts.fragile) == 1 else 'are'} redundant for "
            "these values of the parameters alone: with slightly different ones the mechanism locks"
        )
        remedy = (
            "use one parameter for all lengths that must be equal, and vary or differentiate with "
            "respect to that one; or leave the constraint out"
        )
        findings.append(warning(problem, remedy))
    for name in counts.flat:
        problem = (
            f"the gradient of constraint {name!r} vanishes wherever it holds, as that of a square: "
            "no constraint force can act along it"
        )
        remedy = "give phi itself, which must vanish, not phi^2, another power or its norm"
        findings.append(serious(problem, remedy))
    for name in counts.silent:
        problem = f"an equation of constraint {name!r} does not depend on the coordinates"
        remedy = (
            "harmless where a loop in a plane is closed by a joint in space, such as a `connect` "
            "of an MJCF file, which cannot leave it out: keep it; otherwise remove it, or check "
            "the coordinates it should depend on"
        )
        findings.append(warning(problem, remedy))
    if counts.rigid:
        problem = (
            f"singular pose, rigid to second order: {listed(counts.rigid)} can have a velocity "
            f"here, but no motion. {counts.here} equations are independent, {counts.nearby} are "
            f"needed to hold the pose. Only here {'; '.join(map(clause_of, counts.only_here))}"
        )
        remedy = (
            "change a length or a place of a joint; here the constraints hold the pose to the "
            "square root of round-off only, and their forces are not determined"
        )
        findings.append(serious(problem, remedy))
    elif counts.here < counts.nearby:
        problem = (
            f"singular pose: {counts.here} independent equations here, {counts.nearby} nearby. "
            f"Only here {'; '.join(map(clause_of, counts.only_here))}. The constraints admit more "
            "than one acceleration"
        )
        remedy = (
            "start elsewhere; a trajectory may pass through such a pose, but not start or end there"
        )
        findings.append(serious(problem, remedy))
    elif counts.nearly_singular:
        problem = (
            "nearly singular pose, or masses that differ greatly: A M^-1 A^T has the condition "
            f"number {counts.condition:.1e}"
        )
        remedy = (
            "formulation=UdwadiaKalaba(solver=QR()) and projection=Projection(solver=QR()) keep "
            "twice as many digits; a constraint that nearly repeats others is better left out"
        )
        findings.append(warning(problem, remedy))
    if not counts.is_decided:
        problem = (
            "singular pose: the constraints allow velocities here, but no other pose was found "
            "nearby, so that they may be rigid"
        )
        findings.append(warning(problem, "examine a pose a little farther along the motion"))
    if counts.velocity_freedom == 0:
        problem = "no degree of freedom is left: the constraints alone determine the motion"
        findings.append(note(problem, "leave a constraint out if it should move"))
    return findings


def clause_of(dependence: Dependence) -> str:
    """Describe a dependence in a clause."""
    numbers = [str(k + 1) for k in dependence.equations]
    equations = f"equation {numbers[0]}" if len(numbers) == 1 else f"equations {', '.join(numbers)}"
    verb = "follows" if len(numbers) == 1 else "follow"
    subject = f"{equations} of constraint {dependence.name!r}"
    if not dependence.others:
        return f"{subject} {'is' if len(numbers) == 1 else 'are'} zero in A"
    return f"{subject} {verb} from {listed(dependence.others)}"


def contradictions(
    system: System, sizes: Sequence[int], pose: Pose, qdd: HostArray, tolerance: float
) -> dict[str, Finding]:
    """Findings, by name, on the constraints whose accelerations exclude each other."""
    # The test is that of a step of `simulate`.
    eps, qdd = float(np.finfo(qdd.dtype).eps), qdd.astype(float)
    miss = np.abs(pose.A @ qdd - pose.b)
    terms = np.abs(pose.A).sum(1) * np.abs(qdd).max() + np.abs(pose.b)
    # Near an equilibrium, and in rows of zeros, all terms may be round-off of greater ones.
    free = np.abs(np.linalg.lstsq(pose.metric, pose.Q)[0]).max()
    rounding = eps**0.75 * (np.abs(pose.A).sum(1) * free + terms).max(initial=0.0)
    bad = np.nonzero(miss > np.maximum(eps**0.25 * terms, rounding))[0]
    names = [c.name for c in system.constraints]
    owner, _ = owners(names, sizes)
    missed: dict[str, float] = {}
    for k in bad:
        missed[owner[k]] = max(float(miss[k]), missed.get(owner[k], 0.0))
    return {
        d.name: serious(
            f"no acceleration satisfies constraint {d.name!r}"
            + (f" and {listed(d.others)} at once" if d.others else ", whose row of A is zero")
            + f"; it is missed by {missed[d.name]:.3g}",
            "make them consistent, or leave one of them out",
        )
        for d in dependences(independence(pose.rows, tolerance), names, sizes)
        if d.name in missed
    }
