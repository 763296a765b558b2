"""Covariances of fitted parameters, with all residuals or only whole recordings independent.

At the end of a fit, with H = J^T J and, of each of R recordings, the information H_s and the
gradient g_s of half the squared residuals, the covariance of the parameters is

    noise^2 H^-1                                          if all residuals are independent, and
    R / (R - 1) sum_s (H^-1 g_s)(H^-1 g_s)^T              if only the recordings are, or better
    (R - 1) / R sum_s d_s d_s^T,  d_s = (H - H_s)^-1 g_s.

The second is the sandwich of Liang and Zeger (1986, Biometrika 73), with the factor and the t
distribution with R - 1 degrees of freedom of Cameron and Miller (2015, J. Human Resources 50,
sections II.C and VI). The third is the jackknife (CV3 in MacKinnon, Nielsen and Webb 2023,
J. Econometrics 232): d_s is how far the fit moves without a recording. It remains valid with few
and unequal recordings, where the second is too small.

A prior is one more independent measurement, with the standard deviation that it states.
"""

import numpy as np
from numpy.typing import ArrayLike

from jaxmech.identify.inference.information import Directions, Numbers, checked, directions


def independent(found: Directions, noise: float | int, prior: Numbers) -> Numbers:
    """noise^2 H^-1, (p, p), where `prior` is the part of H that comes from a prior."""
    stated = found.inverse @ prior @ found.inverse
    return noise**2 * (found.inverse - stated) + stated


def sandwich(found: Directions, scores: Numbers, prior: Numbers) -> Numbers | None:
    """R / (R - 1) sum_s (H^-1 g_s)(H^-1 g_s)^T, (p, p), or None with too few recordings."""
    count = len(scores)
    # the scores of R recordings span R - 1 directions at most: in the others the covariance would
    # be zero, as if they were known exactly
    if count <= max(found.rank, 1):
        return None
    moves = scores @ found.inverse
    return count / (count - 1) * moves.T @ moves + found.inverse @ prior @ found.inverse


def jackknife(
    found: Directions, scores: Numbers, prior: Numbers, informations: ArrayLike
) -> Numbers | None:
    """(R - 1) / R sum_s d_s d_s^T, (p, p), or None if one recording alone determines something."""
    count, p = scores.shape
    each = np.asarray(informations, float)
    H = checked("informations", each, (count, p, p), "one matrix per recording")
    if count < 2:
        return None
    moves = []
    for own, score in zip(H, scores, strict=True):
        rest = directions(found.names, found.values, found.information - own, scales=found.scales)
        if rest.rank < found.rank:
            return None
        moves.append(rest.inverse @ score)
    spread = (count - 1) / count * np.transpose(moves) @ moves
    return spread + found.inverse @ prior @ found.inverse
