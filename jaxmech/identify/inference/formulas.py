"""Short formulas, and the search for those that are unchanged along a null space.

A formula passes if the changes of its terms along every null direction cancel, up to a share of

    min(tolerance, (1e-3 / N)^(1/k))

of their sizes, where N candidates are as simple or simpler and k null directions change its terms:
random numbers do so with about that probability to the power k, so that one search in a thousand
has a false result. Each null direction of a sparse basis is tested by itself, so that a small
change in one does not go unnoticed beside a large change in another.

Sums are not tried one by one: in a sum over a divisor P the change of the last term is known from
those of the others, and is looked up in a k-d tree of all terms by its direction and the logarithm
of its size.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations as subsets
from itertools import compress, product
from math import comb, gcd
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jaxmech.utils.arrays import HostArray

NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST = 5000  # subsets to be tried

T = TypeVar("T")


def circuits(null_space: HostArray) -> HostArray:
    """A basis (p, r) of the space of independent columns (p, r), each vector as sparse as possible.

    Example:
        >>> circuits(np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])) + 0.0
        array([[0., 1.],
               [1., 0.],
               [0., 1.]])
    """
    p, r = null_space.shape
    if not r:
        return null_space
    basis = np.linalg.qr(null_space / np.linalg.norm(null_space, axis=0))[0]
    rows = [k for k in range(p) if np.abs(basis[k]).max() > NEGLIGIBLE]
    vectors = []
    # A vector of an r-dimensional space that is zero in r - 1 given entries is unique in general,
    # so all choices of entries are tried (the vectors are the circuits of the matroid of the rows;
    # Oxley, Matroid Theory, 2011, section 1.1). Where they are too many, one elimination serves.
    if comb(len(rows), r - 1) <= _MOST:
        for zero in subsets(rows, r - 1):
            _, s, vt = np.linalg.svd(basis[list(zero)])
            if np.all(s > 1e-6):
                vectors.append(tidy(basis @ vt[-1]))
    else:
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(basis.T, pivoting=True, mode="economic")[2][:r]
        vectors = [tidy(z) for z in (basis @ np.linalg.inv(basis[pivots])).T]
    # few parameters first, then simple ratios, then the first parameters
    vectors.sort(key=lambda z: (np.count_nonzero(z), not is_simple(z), (z == 0).tolist()))
    return np.transpose(independent(vectors, lambda z: z, r, least=1e-6))


def is_simple(z: HostArray) -> bool:
    """Whether the nonzero numbers are multiples of the smallest by integers up to 9."""
    z = z / np.abs(z[z != 0]).min()
    return bool(np.all(np.abs(z - z.round()) < 1e-6) and np.abs(z).max() < 9.5)


def tidy(z: HostArray, negligible: float = NEGLIGIBLE) -> HostArray:
    """The vector without round-off, its largest component 1 or -1, its first positive."""
    z = np.where(np.abs(z) > negligible * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])


def independent(
    candidates: Iterable[T], vector: Callable[[T], HostArray], count: int, *, least: float
) -> list[T]:
    """The first `count` whose vectors have a share of `least` beyond the span of those before."""
    chosen: list[T] = []
    span: list[HostArray] = []
    for candidate in candidates if count else ():
        row = vector(candidate)
        unit = row / np.linalg.norm(row)
        rows = np.reshape(span, (-1, unit.size))
        residue = unit - rows.T @ (rows @ unit)
        # twice is enough for orthogonality to round-off
        residue = residue - rows.T @ (rows @ residue)
        if (length := np.linalg.norm(residue)) > least:
            chosen.append(candidate)
            span.append(residue / length)
        if len(chosen) == count:
            break
    return chosen


ACCIDENTS = 1e-3  # expected number of formulas that pass by accident
_MOST_TERMS = 300  # power products to be summed
_MOST_SETS = 1200  # sets of parameters to be multiplied
_RADIUS = 1e-5  # distance in the tree up to which a term is tested
_NEAREST = 4  # number of such terms that are tested

Exponents = NDArray[np.int_]
Powers = tuple[int, ...]


@dataclass(frozen=True)
class Formula:
    """(sum of signed power products) / (power product).

    Example:
        >>> inertia = Formula(("m", "a", "I"), ((1, 2, 0), (0, 0, 1)), (1, 1), (0, 0, 0))
        >>> print(inertia, inertia([2.0, 3.0, 0.5]), inertia.gradient([2.0, 3.0, 0.5]))
        m a^2 + I 18.5 [ 9. 12.  1.]
    """

    names: tuple[str, ...]  # names of all p parameters
    terms: tuple[Powers, ...]  # the exponents of each product in the sum, p each
    signs: tuple[int, ...]  # 1 or -1 for each term
    divisor: Powers

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that occur in it."""
        occurs = np.any(np.array([*self.terms, self.divisor]) != 0, axis=0)
        return tuple(compress(self.names, occurs))

    def __call__(self, values: Sequence[float] | HostArray) -> float:
        """The value for values (p,) of all parameters."""
        return float(np.dot(self.signs, powers(values, self.exponents)))

    def gradient(self, values: Sequence[float] | HostArray) -> HostArray:
        """The derivatives (p,) by all parameters, at values (p,)."""
        E = self.exponents
        lower = E[:, None, :] - np.eye(E.shape[1], dtype=int)
        slopes = E * powers(values, np.where(E[:, :, None] != 0, lower, 0))
        return np.asarray(self.signs) @ slopes

    @property
    def exponents(self) -> NDArray[np.int_]:
        """Exponents of each term divided by the divisor, shape (number of terms, p)."""
        return np.array(self.terms) - np.array(self.divisor)

    def __str__(self) -> str:
        # products before single parameters, as in m a^2 + I
        sizes = [(-sum(e != 0 for e in term), -sum(map(abs, term))) for term in self.terms]
        order = sorted(range(len(self.terms)), key=sizes.__getitem__)
        if len(order) == 1:
            return quotient(self.names, self.exponents[0])
        order.sort(key=lambda k: self.signs[k] < 0)
        numerator = ""
        for k in order:  # positive terms first, so that a sum seldom begins with a sign
            sign = " - " if self.signs[k] < 0 else " + "
            numerator += (sign if numerator else "") + quotient(self.names, self.terms[k])
        if not any(self.divisor):
            return numerator
        denominator = quotient(self.names, self.divisor)
        if " " in denominator or "/" in denominator:
            denominator = f"({denominator})"
        return f"({numerator})/{denominator}"


def powers(values: Sequence[float] | HostArray, exponents: NDArray[np.int_]) -> HostArray:
    """Products of powers of the values, the exponents along the last axis; 0^0 is 1."""
    base = np.where(exponents == 0, 1.0, np.asarray(values, float))
    return np.prod(base**exponents, axis=-1)


def quotient(names: Sequence[str], exponents: Sequence[int] | NDArray[np.int_]) -> str:
    """Format a power product, masses first.

    Example:
        >>> print(quotient(["a", "m", "k"], [-1, -1, 1]), quotient(["a", "m", "k"], [2, 1, 0]))
        k/(m a) m a^2
    """

    def product(sign: int) -> list[str]:
        chosen = [k for k, e in enumerate(exponents) if e * sign > 0]
        chosen.sort(key=lambda k: (abs(exponents[k]), not names[k].split(".")[-1].startswith("m")))
        powers = [f"^{abs(exponents[k])}" if abs(exponents[k]) > 1 else "" for k in chosen]
        return [names[k] + power for k, power in zip(chosen, powers, strict=True)]

    numerator, denominator = " ".join(product(1)) or "1", product(-1)
    if not denominator:
        return numerator
    if len(denominator) == 1:
        return f"{numerator}/{denominator[0]}"
    return f"{numerator}/({' '.join(denominator)})"


class _Terms(NamedTuple):
    """Power products, and how they change along the d null directions of all points."""

    exponents: Exponents  # of n products, (n, p)
    sizes: HostArray  # their values, (n, d)
    changes: HostArray  # (n, d)
    parts: HostArray  # sums of the absolute changes due to each parameter, (n, d)


def passing(
    names: tuple[str, ...], values: HostArray, null: HostArray, affected: NDArray[np.bool_],
    tolerance: float,
) -> Iterator[Formula]:  # fmt: skip
    """The formulas that pass: products, then sums of two and three over divisors.

    The columns of `null` (p, d) are sparse null directions, of one or several points, and those of
    `values` (p, d) the parameters at these.

    Example:
        >>> values, null = np.array([[2.0], [3.0]]), np.array([[1.0], [-1.0]])
        >>> print(next(passing(("a", "b"), values, null, np.array([True, True]), 1e-6)))
        a + b
    """
    nonzero = np.all(values != 0, axis=1)
    # changes of the logarithms of the parameters; zero for those of value zero
    relative = np.divide(null, values, out=np.zeros_like(null), where=values != 0)
    along = values, null, relative
    one_divisor = (0,) * len(names)
    tried = 0
    for group in _by_cost(_products(np.flatnonzero(affected & nonzero), len(names))):
        tried += len(group)
        terms = _terms(group, *along)
        good = _cancels(terms.changes, terms.parts, tolerance, tried)
        yield from (Formula(names, (tuple(e),), (1,), one_divisor) for e in group[good].tolist())
    terms = _terms(_monomials(affected, nonzero), *along)
    unit = np.eye(len(names), dtype=int)
    singles = [unit[k] for k in np.flatnonzero(affected & nonzero).tolist()]
    divisors = [[np.zeros(len(names), int)], singles, [a + b for a, b in subsets(singles, 2)]]
    for count in (2, 3):
        for level in divisors:
            tried += 2 * len(terms.exponents) ** count // count * len(level)
            formulas = []
            for divisor in level:
                residue = _over(terms, divisor, relative)
                for chosen, signs in _sums(residue, count, tolerance, tried):
                    summands = tuple(map(tuple, terms.exponents[list(chosen)].tolist()))
                    formulas.append(Formula(names, summands, signs, tuple(divisor.tolist())))
            yield from sorted(formulas, key=_cost)


def _sums(
    terms: _Terms, count: int, tolerance: float, tried: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Find the terms that cancel, with their signs, where no smaller sum of them does."""
    summed = np.flatnonzero(np.any(terms.changes != 0, axis=1))
    x = terms.changes[summed]
    if len(x) < count:
        return
    from scipy.spatial import cKDTree  # slow to import, and seldom needed

    tree = cKDTree(_keys(x))
    if count == 3:
        i, j = np.triu_indices(len(x), 1)
        partial_sums: HostArray = x[i] + x[j]
        sizes: HostArray = np.abs(x[i]) + np.abs(x[j])
        rows = np.flatnonzero(~np.all(np.abs(partial_sums) <= _RADIUS * sizes, axis=1))
    else:
        i = j = rows = np.arange(len(x))
        partial_sums, sizes = x, np.abs(x)
    for sign in (1, -1) if count == 2 else (1,):
        _, last = tree.query(
            _keys(-sign * partial_sums[rows]), min(_NEAREST, len(x)), distance_upper_bound=_RADIUS
        )
        last = last.reshape(len(rows), -1)
        k, nearest = np.nonzero(last < len(x))  # len(x) stands for no neighbour
        pair, third = rows[k], last[k, nearest]
        good = (third > j[pair]) & _cancels(
            partial_sums[pair] + sign * x[third], sizes[pair] + np.abs(x[third]), tolerance, tried
        )
        for a, b in zip(pair[good], third[good], strict=True):
            chosen = (i[a], j[a], b) if count == 3 else (i[a], b)
            yield tuple(int(summed[c]) for c in chosen), (1,) * (count - 1) + (sign,)


def _keys(x: HostArray) -> HostArray:
    """The direction of a change and the logarithm of its size."""
    size = np.linalg.norm(x, axis=1, keepdims=True)
    return np.hstack([x / size, np.log(size)])


def _cancels(sums: HostArray, parts: HostArray, tolerance: float, tried: int) -> NDArray[np.bool_]:
    """Whether sums vanish compared with their parts, in all null directions that have any."""
    conditions = np.count_nonzero(parts > 0, axis=1)
    allowed = np.minimum(tolerance, (ACCIDENTS / tried) ** (1 / np.maximum(conditions, 1)))
    return (conditions > 0) & np.all(np.abs(sums) <= allowed[:, None] * parts, axis=1)


def _terms(exponents: Exponents, values: HostArray, null: HostArray, relative: HostArray) -> _Terms:
    sizes = np.stack([powers(column, exponents) for column in values.T], axis=1)
    changes = sizes * (exponents @ relative)
    parts = np.abs(sizes) * (np.abs(exponents) @ np.abs(relative))
    zero = (exponents.sum(1) == 1)[:, None] & (sizes == 0)  # single parameters of value zero
    changes = np.where(zero, exponents @ null, changes)
    return _Terms(exponents, sizes, changes, np.where(zero, np.abs(changes), parts))


def _over(terms: _Terms, divisor: Exponents, relative: HostArray) -> _Terms:
    """The changes of the terms over a divisor; round-off set to zero."""
    changes = terms.changes - terms.sizes * (divisor @ relative)
    parts = terms.parts + np.abs(terms.sizes) * (divisor @ np.abs(relative))
    changes = np.where(np.abs(changes) <= NEGLIGIBLE * parts, 0.0, changes)
    return _Terms(terms.exponents, terms.sizes, changes, parts)


def _products(indices: NDArray[np.int_], p: int) -> Exponents:
    """Products of up to three parameters with exponents from -2 to 2, of four with -1 and 1."""
    rows: list[Exponents] = []
    for size in range(1, 5):
        powers_of_one = (-2, -1, 1, 2) if size < 4 else (-1, 1)
        kinds = [e for e in product(powers_of_one, repeat=size) if _is_first(e)]
        for chosen in subsets(indices, size) if comb(len(indices), size) <= _MOST_SETS else ():
            units = np.eye(p, dtype=int)[list(chosen)]
            rows += list(np.array(kinds, int).reshape(-1, size) @ units)
    return np.array(rows, int).reshape(-1, p)


def _is_first(exponents: Sequence[int]) -> bool:
    """Whether a product precedes its inverse (fewer divisors), and is no power of another one."""
    balance = sum(e > 0 for e in exponents) - sum(e < 0 for e in exponents)
    return (balance or -exponents[0]) > 0 and gcd(*exponents) == 1


def _monomials(affected: NDArray[np.bool_], nonzero: NDArray[np.bool_]) -> Exponents:
    """x, x y, x y^2 and x^2, leaving out the kinds that would exceed `_MOST_TERMS`."""
    unit = np.eye(len(affected), dtype=int)
    units = list(unit[nonzero])
    kinds = [
        list(unit[affected | nonzero]),
        [a + b for a, b in subsets(units, 2)],
        [a + 2 * b for a in units for b in units if a is not b],
        [2 * a for a in units],
    ]
    rows: list[Exponents] = []
    for kind in kinds:
        rows += kind if len(rows) + len(kind) <= _MOST_TERMS else []
    return np.array(rows, int).reshape(-1, len(affected))


def _by_cost(exponents: Exponents) -> Iterator[Exponents]:
    """Groups of equal cost, ascending: number of parameters, sum of exponents, of divisors."""
    costs = [(np.count_nonzero(e), np.abs(e).sum(), (e < 0).sum()) for e in exponents]
    for cost in sorted(set(costs)):
        yield exponents[[c == cost for c in costs]]


def _cost(formula: Formula) -> tuple[int, int, int]:
    exponents = np.array([*formula.terms, formula.divisor])
    negative = sum(sign < 0 for sign in formula.signs)
    return (negative, len(formula.parameters), int(exponents.sum()))
