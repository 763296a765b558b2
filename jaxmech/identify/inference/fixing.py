"""What fixing a parameter would do for the others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from jaxmech.identify.inference.information import Directions, Numbers, place


@dataclass(frozen=True, eq=False)
class FixedParameter:
    """What fixing one parameter would do.

    Attributes:
        name: the parameter.
        determined: the parameters that become determined by it.
        undetermined: those that stay undetermined.
        standard_errors: of all parameters, shape (p,), zero for the fixed one.
    """

    name: str
    determined: tuple[str, ...]
    undetermined: tuple[str, ...]
    standard_errors: Numbers


def errors(found: Directions, noise: float | int) -> Numbers:
    """Standard errors as if all residuals were independent, (p,); infinite where not determined.

    Args:
        found: parameter space split by the information.
        noise: standard deviation of the weighted residuals.

    Example:
        >>> from jaxmech.identify.inference.information import directions
        >>> print(errors(directions(["a", "b"], [1.0, 1.0], np.diag([4.0, 0.0])), noise=0.1))
        [0.05  inf]
    """
    variances = np.einsum("ik,ik,k->i", found.kept, found.kept, 1 / found.eigenvalues)
    return np.where(found.determined, noise * np.sqrt(variances), np.inf)


def if_fixed(found: Directions, noise: float | int, name: str) -> FixedParameter:
    """What would become determined, and how well, if one parameter were known.

    Args:
        found: parameter space split by the information.
        noise: standard deviation of the weighted residuals.
        name: of the parameter.

    Example:
        >>> from jaxmech.identify.inference.information import directions
        >>> J = np.array([[2.0, 2.0], [1.0, 1.0]])
        >>> if_fixed(directions(["a", "b"], [2.0, 1.0], J.T @ J), 0.1, "a").determined
        ('b',)
    """
    k = place(name, found.names)
    rest = found.without(name)
    known = np.insert(rest.determined, k, True)
    gained = known & ~found.determined & (np.arange(len(known)) != k)
    return FixedParameter(
        name, chosen(found, gained), chosen(found, ~known), np.insert(errors(rest, noise), k, 0.0)
    )


def to_fix(found: Directions) -> tuple[str, ...]:
    """A smallest set of parameters that would make all others determined.

    By elimination with pivots the ones with the largest parts in the null space, relative to their
    values: then the others depend on the values given to them as little as can be.

    Args:
        found: parameter space split by the information.

    Example:
        >>> from jaxmech.identify.inference.information import directions
        >>> to_fix(directions(["a", "b"], [2.0, 1.0], np.diag([1.0, 0.0])))
        ('b',)
    """
    null = found.null_space / found.scales[:, None]
    if not null.shape[1]:
        return ()
    pivots = qr(np.linalg.qr(null)[0].T, pivoting=True, mode="economic")[2]
    return tuple(found.names[k] for k in sorted(pivots[: null.shape[1]]))


def chosen(found: Directions, which: NDArray[np.bool_]) -> tuple[str, ...]:
    """The names of some parameters.

    Example:
        >>> from jaxmech.identify.inference.information import directions
        >>> chosen(directions(["a", "b"], [2.0, 1.0], np.eye(2)), np.array([False, True]))
        ('b',)
    """
    return tuple(name for name, is_one in zip(found.names, which, strict=True) if is_one)
