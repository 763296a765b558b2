"""What a limit state looks like where it matters: flat, discontinuous, or with several regions."""

from collections.abc import Iterator

import numpy as np

from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.estimates import FailureEstimate
from jaxmech.ensemble.failure.limit_state import LimitState

_RAYS = 8  # from the medians to failures, on which the boundary is looked at
_BISECTIONS = 20
_JUMP = 0.02  # of the margin at the boundary, relative to that of the medians
_FAR = 0.5  # of the reliability index, below which a failure is not behind a design point
_SHARE = 0.1  # of the failures that must be far for a remark
_LISTED = 6  # reliability indices
_LARGEST = 0.02  # share of a failure in a probability that is known to 5 %


def remarks(limit: LimitState, estimate: FailureEstimate, points: Search | None) -> list[str]:
    """Sentences about the limit state, empty if it is smooth with a single region of failures."""
    return [
        *_discrete(limit),
        *_of_boundary(limit, _failures(estimate, points)),
        *(() if points is None else _of_regions(estimate, points)),
    ]


def heavy_tail(estimate: FailureEstimate) -> str | None:
    """The doubt about an estimate of which a few failures make up much, if they do."""
    spread = estimate.coefficient_of_variation
    if estimate.levels or not len(estimate.weights) or not np.isfinite(spread):
        return None
    largest = float(estimate.weights.max())
    if largest <= max(_LARGEST, 4 * spread**2):
        return None
    return (
        f"a single failure carries {100 * largest:.1f} % of the probability, so that there may be "
        "others that carry as much and were not met: the interval is too short; compare it with "
        "the method subset"
    )


def _discrete(limit: LimitState) -> Iterator[str]:
    if steps := limit.space.steps:
        yield (
            f"the margin jumps with {', '.join(steps)}, which has a few values only: design points "
            "are those of its median"
        )


def _failures(estimate: FailureEstimate, points: Search | None) -> np.ndarray:
    """Some failures: those with the largest weights, or behind the design points."""
    if len(estimate.failures):
        order = np.argsort(-estimate.weights, kind="stable")
        return estimate.failures[order[np.linspace(0, len(order) - 1, _RAYS).astype(int)]]
    if points is not None and len(points.points):
        return points.points * 1.1
    return np.zeros((0, 0))


def _of_boundary(limit: LimitState, failures: np.ndarray) -> Iterator[str]:
    """Whether the margin jumps at the boundary, or has the same value everywhere before it."""
    if not len(failures) or limit.left < (_BISECTIONS + 1) * len(failures):
        return
    origin = float(limit.values(np.zeros((1, limit.size)))[0])
    if origin <= 0:
        return
    low, high = np.zeros(len(failures)), np.ones(len(failures))
    safe, failed = np.full(len(failures), origin), np.full(len(failures), np.nan)
    safe_values = []
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        margins = limit.values(middle[:, None] * failures)
        is_safe = margins > 0
        low, high = np.where(is_safe, middle, low), np.where(is_safe, high, middle)
        safe, failed = np.where(is_safe, margins, safe), np.where(is_safe, failed, margins)
        safe_values.append(margins[is_safe])
    known = np.concatenate(safe_values)
    if len(known) > 1 and np.ptp(known) <= 1e-12 * origin:
        yield (
            "the margin is flat: it has the same value wherever the motion is safe, so that only "
            "crude Monte Carlo can be trusted; observe a quantity that tells how far a failure is"
        )
        return
    jumps = safe - failed > _JUMP * origin
    if jumps.any():
        k = int(np.argmax(safe - failed))
        yield (
            f"the margin is discontinuous: it jumps from {safe[k]:.3g} to {failed[k]:.3g} at the "
            f"boundary, on {jumps.sum()} of {len(jumps)} rays; approximations by design points do "
            "not hold"
        )


def _of_regions(estimate: FailureEstimate, points: Search) -> Iterator[str]:
    if not len(points.points):
        why = "the margin has no gradient" if points.flat == 1 else "the search ends"
        yield f"no design point was found, as {why} everywhere it was begun"
        return
    indices = np.abs(points.indices)
    if len(relevant := points.relevant) > 1:
        listed = ", ".join(f"{index:.3g}" for index in relevant[:_LISTED])
        listed += f", ... {relevant[-1]:.3g}" if len(relevant) > _LISTED else ""
        yield f"there are {len(relevant)} regions of failures, with reliability indices {listed}"
    if len(estimate.failures):
        directions = points.points / indices[:, None]
        along = estimate.failures @ directions.T
        far = (along < _FAR * indices).all(1)
        if (share := float(estimate.weights[far].sum())) > _SHARE:
            yield (
                f"{100 * share:.0f} % of the failures are far from the design points: there are "
                "more regions of failures than these"
            )
