"""What a fit has determined: the directions of parameter space that its residuals notice.

The information H = J^T J of a fit has the units of its parameters in it, so neither its eigenvalues
nor its rank mean anything as they stand. Scaled to a unit diagonal,

    U = E H E,    E = diag(H)^-1/2,

it is the matrix of the cosines between the columns of J: free of units, and, up to a factor p, as
well conditioned as any diagonal scaling can make it (van der Sluis 1969). An eigenvector of U
with the eigenvalue zero is a change of the parameters that no residual notices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.floating]

LOST = 1e4  # by how much the elimination of initial states may have shrunk the information


@dataclass(frozen=True, eq=False)
class Directions:
    """Parameter space split into what is determined and what is not.

    Attributes:
        names: the parameters.
        values: their values, shape (p,).
        scales: size by which a change of each is measured: |value|, shape (p,).
        information: H, symmetric, shape (p, p).
        E: the diagonal that scales H, shape (p,).
        eigenvalues: of U, kept ones only, falling, shape (rank,).
        kept: E w for the eigenvectors w of these, shape (p, rank).
        null_space: E w for the others: changes that leave the residuals as they are, (p, r).
        determined: which parameters have no part in the null space, shape (p,).
        threshold: cosine up to which a gradient counts as orthogonal to a null direction.
    """

    names: tuple[str, ...]
    values: Numbers
    scales: Numbers
    information: Numbers
    E: Numbers
    eigenvalues: Numbers
    kept: Numbers
    null_space: Numbers
    determined: NDArray[np.bool_]
    threshold: float

    @property
    def rank(self) -> int:
        """How many independent numbers the residuals determine."""
        return self.eigenvalues.size

    @property
    def condition(self) -> float:
        """Condition number of U on what is determined."""
        return float(self.eigenvalues[0] / self.eigenvalues[-1]) if self.rank else 1.0

    @property
    def inverse(self) -> Numbers:
        """A generalized inverse of H: the pseudo-inverse of U, scaled back."""
        return (self.kept / self.eigenvalues) @ self.kept.T

    def notices(self, gradient: ArrayLike) -> bool:
        """Whether a function of the parameters with this gradient is determined.

        Args:
            gradient: its derivatives by the parameters, shape (p,).
        """
        g = row(gradient, len(self.names))
        size = np.linalg.norm(g * self.E)
        return bool(np.linalg.norm(g @ self.null_space) <= self.threshold * size)

    def without(self, name: str) -> "Directions":
        """The same with one parameter known.

        Args:
            name: of a parameter.
        """
        keep = np.arange(len(self.names)) != place(name, self.names)
        return directions(
            [n for n, k in zip(self.names, keep, strict=True) if k],
            self.values[keep],
            self.information[np.ix_(keep, keep)],
            scales=self.scales[keep],
            tolerance=self.threshold**2,
        )


def directions(
    names: Sequence[str],
    values: ArrayLike,
    information: ArrayLike,
    *,
    scales: ArrayLike | None = None,
    tolerance: float | None = None,
) -> Directions:
    """Split parameter space by the information of a fit.

    Args:
        names: the parameters, p of them.
        values: their values, shape (p,).
        information: J^T J of the weighted residuals, shape (p, p).
        scales: sizes by which changes are measured where |value| will not do, as for a value near
            zero, shape (p,); zeros are ignored.
        tolerance: eigenvalue of U, relative to the largest, up to which a direction is null. By
            default 1e4 p eps: the round-off of J^T J is p eps of its diagonal as it was before
            initial states were eliminated, which may have taken all but a part in 1e4 away.

    Raises:
        ValueError: for shapes that do not fit together, for what is not finite or not positive
            semidefinite.

    Example:
        >>> J = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
        >>> found = directions(["a", "b", "c"], [1.0, 2.0, 3.0], J.T @ J)
        >>> found.rank, found.determined, found.notices([1.0, 1.0, 0.0])
        (2, array([False, False,  True]), True)
    """
    p = len(names)
    values = row(values, p, "values")
    H = square(information, p)
    given = np.zeros(p) if scales is None else np.abs(row(scales, p, "scales"))
    scales = np.where(given > 0, given, np.abs(values))
    eps = float(np.finfo(H.dtype).eps)
    tolerance = LOST * p * eps if tolerance is None else tolerance
    felt = _felt(np.diag(H), scales, p * eps)
    scales = np.where(scales > 0, scales, 1.0)
    E = np.where(felt, 1 / np.sqrt(np.where(felt, np.diag(H), 1.0)), scales)
    U = np.where(felt[:, None] & felt, H * E * E[:, None], 0.0)
    eigenvalues, vectors = np.linalg.eigh(U)
    largest = eigenvalues.max(initial=0.0)
    if eigenvalues.min(initial=0.0) < -100 * tolerance * max(largest, 1.0):
        raise _indefinite(f"smallest eigenvalue with a unit diagonal is {eigenvalues.min():.2g}")
    keep = eigenvalues > tolerance * largest
    null = vectors[:, ~keep]
    return Directions(
        names=tuple(names),
        values=values,
        scales=scales,
        information=H,
        E=E,
        eigenvalues=eigenvalues[keep][::-1],
        kept=E[:, None] * vectors[:, keep][:, ::-1],
        null_space=E[:, None] * null,
        determined=np.linalg.norm(null, axis=1) <= np.sqrt(tolerance),
        threshold=float(np.sqrt(tolerance)),
    )


def row(values: ArrayLike, p: int, argument: str = "gradient") -> Numbers:
    """Finite numbers of shape (p,), or an error that names the argument.

    Example:
        >>> row([1.0, 2.0], 3)
        Traceback (most recent call last):
        ValueError: Argument `gradient` must have shape (3,), one number per parameter, but has
        shape (2,).
    """
    numbers = np.asarray(values, np.result_type(np.asarray(values), np.float32))
    if numbers.shape != (p,):
        raise ValueError(
            f"Argument `{argument}` must have shape ({p},), one number per parameter, but has "
            f"shape {numbers.shape}."
        )
    require_finite_numbers(argument, numbers)
    return numbers


def square(information: ArrayLike, p: int, argument: str = "information") -> Numbers:
    """A finite symmetric matrix of shape (p, p), or an error that names the argument.

    Example:
        >>> square([[1.0, 0.0], [5.0, 1.0]], 2)
        Traceback (most recent call last):
        ValueError: Argument `information` must be symmetric, but [1, 0] is 5 and [0, 1] is 0.
    """
    H = np.asarray(information, np.result_type(np.asarray(information), np.float32))
    if H.shape != (p, p):
        raise ValueError(
            f"Argument `{argument}` must have shape ({p}, {p}), one row and one column per "
            f"parameter, but has shape {H.shape}."
        )
    require_finite_numbers(argument, H)
    uneven = np.abs(H - H.T) > 1e-6 * np.sqrt(np.abs(np.outer(np.diag(H), np.diag(H))))
    if uneven.any():
        i, j = np.argwhere(np.tril(uneven))[0]
        raise ValueError(
            f"Argument `{argument}` must be symmetric, but [{i}, {j}] is {H[i, j]:g} and "
            f"[{j}, {i}] is {H[j, i]:g}."
        )
    return (H + H.T) / 2


def require_finite_numbers(argument: str, numbers: Numbers) -> None:
    """Raise a ValueError that names the first place where a number is NaN or infinite."""
    for index in np.argwhere(~np.isfinite(numbers)):
        where = ", ".join(str(i) for i in index)
        raise ValueError(
            f"Argument `{argument}` must be finite, but [{where}] is {numbers[tuple(index)]}; the "
            "fit ended where its residuals have no derivative."
        )


def place(name: str, names: Sequence[str]) -> int:
    """The number of a parameter, or an error that offers the nearest name.

    Example:
        >>> place("m9", ["m1", "a1"])
        Traceback (most recent call last):
        ValueError: Argument `name` must be a parameter that was fitted, but is 'm9'; did you mean
        'm1'? Known: m1, a1.
    """
    if name not in names:
        near = get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"Argument `name` must be a parameter that was fitted, but is {name!r};{hint} "
            f"Known: {', '.join(names) or 'none'}."
        )
    return list(names).index(name)


def _felt(diagonal: Numbers, scales: Numbers, tolerance: float) -> NDArray[np.bool_]:
    """Parameters whose own relative change is more than round-off to the residuals.

    Without a scale there is nothing to hold them against, and anything above zero counts.
    """
    effects = diagonal * scales**2
    least = np.where(scales > 0, tolerance * np.abs(effects).max(initial=0.0), 0.0)
    if np.any(effects < -100 * least):
        raise _indefinite(f"diagonal has the number {diagonal.min():.2g}")
    return (diagonal > 0) & (effects >= least)


def _indefinite(which: str) -> ValueError:
    return ValueError(
        f"Argument `information` must be positive semidefinite, but its {which}; give J^T J of the "
        "residuals."
    )
