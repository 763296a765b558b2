"""Status codes of a trajectory, each with a message and the usual remedy."""

from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """The outcome of a trajectory; except for `OK`, a solution has the time of the failure too."""

    OK = 0
    NONFINITE = 1
    INCONSISTENT = 2
    CONTRADICTORY = 3
    PROJECTION_FAILED = 4
    SINGULAR_MASS = 5
    NONIDEAL_FAILED = 6
    ILL_CONDITIONED = 7
    NOT_CONVERGED = 8
    MAX_STEPS = 9
    STEP_UNDERFLOW = 10
    STIFF = 11
    STOPPED = 12
    TOO_MANY_EVENTS = 13
    NOT_ON_CONSTRAINT = 14
    EVENT_IS_NAN = 15
    CONTACT_AT_REST = 16
    CONTACT_UNSOLVED = 17
    TOO_MANY_CONTACTS = 18
    GAP_JUMPED = 19
    CONTACT_VALUE = 20

    @property
    def message(self) -> str:
        """The message as one sentence, with the usual remedy."""
        return _MESSAGES[self]

    def __str__(self) -> str:
        return self.name if self is Status.OK else f"{self.name}: {self.message}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec) if spec in ("", "s") else format(int(self), spec)


def succeeded(status: Any) -> Any:
    """Whether trajectories ended without a failure, for one status or an array of them."""
    return (status == Status.OK) | (status == Status.STOPPED)


_MESSAGES = {
    Status.OK: "the whole trajectory was computed",
    Status.NONFINITE: (
        "the state became infinite or NaN; take a smaller step with a larger "
        "`FixedSteps(per_save=...)` (`steps.per_save`), or check the functions of the system and, "
        "under `jit`, the save times"
    ),
    Status.INCONSISTENT: (
        "the initial state violates the constraints; pass it through `assemble` first"
    ),
    Status.CONTRADICTORY: (
        "no acceleration satisfies A qdd = b; two constraints contradict each other there"
    ),
    Status.PROJECTION_FAILED: (
        "the state could not be brought back onto the constraints; take a smaller step with a "
        "larger `FixedSteps(per_save=...)` (`steps.per_save`), or `Adaptive()` if the motion has "
        "events, or more iterations in `Projection` or `CoordinatePartition`"
    ),
    Status.SINGULAR_MASS: (
        "the mass matrix is not positive definite there, alone or together with the constraints; "
        "if [M; A] has full column rank pass `UdwadiaKalaba(singular_mass=True)`"
    ),
    Status.NONIDEAL_FAILED: (
        "no multipliers agree with the force `nonideal` that depends on them, or several do "
        "(Painleve's paradox); reduce the friction or model the guides as compliant"
    ),
    Status.ILL_CONDITIONED: (
        "masses differ so much that an independent constraint equation counts as dependent; pass "
        "`UdwadiaKalaba(solver=QR())` and `Projection(solver=QR())`, or compute in float64"
    ),
    Status.NOT_CONVERGED: (
        "the equations of an implicit step could not be solved; take a smaller step with a larger "
        "`FixedSteps(per_save=...)` (`steps.per_save`)"
    ),
    Status.MAX_STEPS: (
        "the tolerance needs more steps than `max_steps`; increase `max_steps`, `rtol` or `atol` "
        "in `Adaptive` (`steps`)"
    ),
    Status.STEP_UNDERFLOW: (
        "the step became smaller than the round-off error of the time; look for a jump or a "
        "singular point there, or increase `rtol` and `atol` in `Adaptive` (`steps`)"
    ),
    Status.STIFF: (
        "`max_steps` was reached with steps limited by stability, not by the tolerance: the system "
        "seems to be stiff; use a method for stiff systems, or increase `max_steps`"
    ),
    Status.STOPPED: "a terminal event ended the trajectory; this is not a failure",
    Status.TOO_MANY_EVENTS: (
        "more than 8 events in one step, or the `max_steps` of `Adaptive` all at one time, as when "
        "a ball comes to rest in ever shorter bounces; end such a motion earlier with a terminal "
        "event at a small energy, or take a smaller step; the limit is 1,000 for `Unilateral` "
        "constraints, which come to rest, unless a body is squeezed"
    ),
    Status.NOT_ON_CONSTRAINT: (
        "the state after a transition violates a position constraint that is active; trigger the "
        "event where the constraint that it switches on is satisfied"
    ),
    Status.EVENT_IS_NAN: "the function of an event is NaN; check it at that state",
    Status.CONTACT_AT_REST: (
        "bodies that touch are pressed together at rest, which no impact can prevent; switch on a "
        "constraint there by `Transition(on=...)`, or end the motion earlier with a terminal event "
        "at a small energy; a `Unilateral` constraint in place of the event does both"
    ),
    Status.CONTACT_UNSOLVED: (
        "no pushes of the closed gaps keep all of them from closing further, as when a body is "
        "squeezed between two that approach each other; look for the conflict among the "
        "`Unilateral` constraints and what moves them. With strong friction there may also be "
        "several motions, or none, of a body that slides (Painlevé); take a smaller coefficient"
    ),
    Status.TOO_MANY_CONTACTS: (
        "more than 8 gaps are closed at once; model fewer points of contact between the same bodies"
    ),
    Status.GAP_JUMPED: (
        "a gap jumps to a negative value there, so that bodies would overlap; let it close in a "
        "short time, or put a constraint in place by an event where its gap is not negative"
    ),
    Status.CONTACT_VALUE: (
        "a restitution is not from 0 to 1, a limit of friction is negative, or the kinetic one is "
        "above the static one; change the parameters, or the distributions that they are drawn from"
    ),
}
