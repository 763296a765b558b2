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
    """Standard errors (p,) for independent residuals, infinite where not determined."""
    variances = np.einsum("ik,ik,k->i", found.kept, found.kept, 1 / found.eigenvalues)
    return np.where(found.determined, noise * np.sqrt(variances), np.inf)


def if_fixed(found: Directions, noise: float | int, name: str) -> FixedParameter:
    """What would become determined, and how well, if one parameter were known."""
    k = place(name, found.names)
    rest = found.without(name)
    known = np.insert(rest.determined, k, True)
    gained = known & ~found.determined & (np.arange(len(known)) != k)
    return FixedParameter(
        name, chosen(found, gained), chosen(found, ~known), np.insert(errors(rest, noise), k, 0.0)
    )


def to_fix(found: Directions) -> tuple[str, ...]:
    """A smallest set of parameters that would make all others determined.

    Example:
        >>> from jaxmech.identify.inference.information import directions
        >>> to_fix(directions(["a", "b"], [2.0, 1.0], np.diag([1.0, 0.0])))
        ('b',)
    """
    null = found.null_space / found.scales[:, None]
    if not null.shape[1]:
        return ()
    # pivoting takes the largest relative parts in the null space: then the other parameters depend
    # on the values given to the fixed ones as little as possible
    pivots = qr(np.linalg.qr(null)[0].T, pivoting=True, mode="economic")[2]
    return tuple(found.names[k] for k in sorted(pivots[: null.shape[1]]))


def chosen(found: Directions, which: NDArray[np.bool_]) -> tuple[str, ...]:
    """The names of the parameters that a mask (p,) selects."""
    return tuple(name for name, is_one in zip(found.names, which, strict=True) if is_one)
