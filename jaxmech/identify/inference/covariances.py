"""Covariances of fitted parameters, with all residuals or only whole recordings independent.

At the end of a fit, with H = J^T J and, of each of R recordings, the information H_s and the
gradient g_s of the half squared residual, the covariance of the parameters is

    noise^2 H^-1                                          if all residuals are independent, and
    R / (R - 1) sum_s (H^-1 g_s)(H^-1 g_s)^T              if only the recordings are, or better
    (R - 1) / R sum_s d_s d_s^T,  d_s = (H - H_s)^-1 g_s.

The second is the sandwich of Liang and Zeger (1986, Biometrika 73), with the factor and the t
distribution with R - 1 degrees of freedom of Cameron and Miller (2015, J. Human Resources 50,
sections II.C and VI). The third is the jackknife (CV3 in MacKinnon, Nielsen and Webb 2023,
J. Econometrics 232): d_s is how far the fit moves without a recording. It holds with few and
unequal recordings too, where the second is too small.

A prior is one more independent measurement, whose errors are as stated.
"""

import numpy as np
from numpy.typing import ArrayLike

from jaxmech.identify.inference.information import (
    Directions,
    Numbers,
    directions,
    require_finite_numbers,
)


def independent(found: Directions, noise: float | int, prior: Numbers) -> Numbers:
    """noise^2 H^-1, shape (p, p).

    Args:
        found: parameter space split by H.
        noise: standard deviation of the weighted residuals.
        prior: the part of H that comes from a prior, shape (p, p).

    Example:
        >>> found = directions(["a"], [1.0], [[4.0]])
        >>> print(independent(found, 0.5, np.zeros((1, 1))))
        [[0.0625]]
    """
    stated = found.inverse @ prior @ found.inverse
    return noise**2 * (found.inverse - stated) + stated


def sandwich(found: Directions, scores: Numbers, prior: Numbers) -> Numbers | None:
    """R / (R - 1) sum_s (H^-1 g_s)(H^-1 g_s)^T, shape (p, p).

    Args:
        found: parameter space split by H.
        scores: the gradients g_s, shape (R, p).
        prior: the part of H that comes from a prior, shape (p, p).

    Returns:
        None where the recordings are no more than what is determined: the scores of R recordings
        span R - 1 directions at most, and in the others something would seem certain that is not.

    Example:
        >>> found = directions(["a"], [1.0], [[4.0]])
        >>> print(sandwich(found, np.array([[0.4], [-0.4]]), np.zeros((1, 1))))
        [[0.04]]
    """
    count = len(scores)
    if count <= max(found.rank, 1):
        return None
    moves = scores @ found.inverse
    return count / (count - 1) * moves.T @ moves + found.inverse @ prior @ found.inverse


def jackknife(
    found: Directions, scores: Numbers, prior: Numbers, informations: ArrayLike
) -> Numbers | None:
    """(R - 1) / R sum_s d_s d_s^T, shape (p, p).

    Args:
        found: parameter space split by H.
        scores: the gradients g_s, shape (R, p).
        prior: the part of H that comes from a prior, shape (p, p).
        informations: H_s of each recording, shape (R, p, p).

    Returns:
        None where something is determined by one recording alone.

    Raises:
        ValueError: for informations of another shape, or that are not finite.

    Example:
        >>> found = directions(["a"], [1.0], [[4.0]])
        >>> g, H = np.array([[0.4], [-0.4]]), [[[2.0]], [[2.0]]]
        >>> print(jackknife(found, g, np.zeros((1, 1)), H))
        [[0.04]]
    """
    count, p = scores.shape
    H = np.asarray(informations, float)
    if H.shape != (count, p, p):
        raise ValueError(
            f"Argument `informations` must have shape ({count}, {p}, {p}), one matrix per "
            f"recording, but has shape {H.shape}."
        )
    require_finite_numbers("informations", H)
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


def gradients(scores: ArrayLike, p: int) -> Numbers:
    """The scores as finite numbers of shape (R, p), or an error that says what they must be.

    Example:
        >>> gradients([1.0, 2.0], 2)
        Traceback (most recent call last):
        ValueError: Argument `scores` must have shape (recordings, 2), one gradient per recording,
        but has shape (2,).
    """
    g = np.asarray(scores, float)
    if g.ndim != 2 or g.shape[1] != p:
        raise ValueError(
            f"Argument `scores` must have shape (recordings, {p}), one gradient per recording, but "
            f"has shape {g.shape}."
        )
    require_finite_numbers("scores", g)
    return g
