"""The numbers that are fitted: their names, bounds and priors, and the unknowns behind them.

The unknowns x of a parameter are its numbers in units of their size at the start, which the trust
region keeps within bounds. Random starting points, and the posterior density, need numbers z
without bounds, by which x moves:

    no bounds           x + z
    low                 low + (x - low) exp(z)         masses, inertias, friction
    high                high - (high - x) exp(-z)
    low and high        low + (high - low) / (1 + exp(-y)),  y = log((x - low) / (high - x)) + z

The mass, centre of mass and inertia of one body are fitted together, as numbers that some body has.
With the centre of mass c, the matrix of inertia I_C about it, and the second moments of mass there,
S_C = tr(I_C)/2 1 - I_C, the pseudo-inertia of a body about the origin of its axes is

    J = [[S_C + m c c^T, m c], [m c^T, m]]

Some distribution of mass has these ten numbers if and only if J is positive definite (Wensing, Kim
and Slotine, "Linear matrix inequalities for physically consistent inertial parameter
identification", IEEE Robotics and Automation Letters 3, 2018): the mass is positive, and no
principal moment about the centre exceeds the sum of the two others. Free numbers make every such J,
and no other, by its log-Cholesky form (Rucker and Wensing, "Smooth parameterization of rigid-body
inertia", IEEE Robotics and Automation Letters 7, 2022):

    J = U U^T,   U = exp(a) [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3],
                             [0, 0, 0, 1]]

so that m = exp(2 a), c = t, and S_C = m V V^T with the upper triangle V of the d and s. Here V is
relative to its start, V = V0 (e^d, s), and t in units of the radius of gyration there, so that all
ten are zero at the start of a fit and of the same size; as unknowns they have an offset. In the
plane, I_C = I_0 exp(2 a + 2 d).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isinf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts import AbstractRigidBody, EnergyDifference
from jaxmech.system import Params, System, Unilateral
from jaxmech.utils.checks import require_finite
from jaxmech.utils.text import not_one_of
from jaxmech.utils.trees import as_dtype, entry_names, is_within, leaf_names

Entry = tuple[int, ...]
_NEAREST = 1e-100  # smallest distance from a bound, in units of the start


@dataclass(frozen=True)
class Bounds:
    """Parameters in an interval, possibly infinite."""

    low: float = -inf
    high: float = inf

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """The fitted entries of the leaf, one for each unknown: all of them."""
        return tuple(np.ndindex(*shape))

    def excludes(self, start: np.ndarray) -> str:
        """The reason why a fit cannot start here, at or outside a bound, or an empty text."""
        if np.all((self.low < start) & (start < self.high)):
            return ""
        if isinf(self.high):
            return f"must be more than {self.low:g}"
        if isinf(self.low):
            return f"must be less than {self.high:g}"
        return f"must lie between {self.low:g} and {self.high:g}"

    def first(self, start: np.ndarray) -> np.ndarray:
        """The unknowns at the start, the size of the first trust region: 1 or -1, 0 for zero."""
        return start.ravel() / self.units(start)

    def value(self, x: Any, start: Any) -> Any:
        """The leaf for x, of JAX or NumPy as x is: the latter compiles nothing."""
        xp = x.__array_namespace__()
        start = xp.asarray(start)
        return x.reshape(start.shape) * xp.where(start == 0, 1.0, xp.abs(start))

    def limits(self, start: np.ndarray) -> np.ndarray:
        """The bounds of the unknowns, in units of the start, (2, size of x)."""
        return np.array([self.low, self.high])[:, None] / self.units(start)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their unknowns by one: their first sizes."""
        return np.where(start == 0, 1.0, np.abs(start)).ravel()

    def moved(self, x: Any, z: Any, start: np.ndarray) -> Any:
        """The unknowns moved by numbers z without bounds."""
        xp = z.__array_namespace__()
        low, high = self.limits(start)
        if isinf(self.low) and isinf(self.high):
            return x + z
        above, below = (xp.maximum(distance, _NEAREST) for distance in (x - low, high - x))
        if isinf(self.high):
            return low + above * xp.exp(z)
        if isinf(self.low):
            return high - below * xp.exp(-z)
        return low + (high - low) / (1 + below / above * xp.exp(-z))


# A step of 1 would change the mass by a factor of 7, and a fit end at a flat body.
_FIRST = 0.03
_FLAT = 64  # units of round-off, relative to the largest moment, up to which a body is flat


@dataclass(frozen=True)
class BodyInertia:
    """All numbers of a body behind each other: mass, centre, inertia about it; as `Bounds`."""

    dimension: int  # 2 in the plane, 3 in space
    points: int  # how many numbers of the centre there are; others are constant
    moments: tuple[int, ...]  # the shape of the inertia, (), (3,) or (3, 3)

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """All numbers, but the lower triangle of a matrix."""
        first = 1 + self.points
        inertia = np.arange(int(np.prod(self.moments))).reshape(self.moments)
        if len(self.moments) == 2:
            inertia = inertia[np.tril_indices(3)]
        return tuple((k,) for k in [*range(first), *(first + inertia.ravel()).tolist()])

    def first(self, start: np.ndarray) -> np.ndarray:
        return np.full(len(self.entries(())), _FIRST)

    def limits(self, start: np.ndarray) -> np.ndarray:
        return np.array([-np.inf, np.inf])[:, None] * self.units(start)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their unknowns by one: unknown."""
        return np.ones(len(self.entries(())))

    def moved(self, x: Any, z: Any, start: np.ndarray) -> Any:
        return x + z

    def excludes(self, start: np.ndarray) -> str:
        """A start that no body has, with the inequality that it violates."""
        mass, _, inertia = self._split(np.asarray(start, float))
        if not mass > 0:
            return f"its mass {mass:.6g} is not positive"
        if self.dimension == 2:
            return "" if inertia > 0 else f"its inertia about the centre, {inertia:.6g}, is not > 0"
        matrix = inertia if inertia.ndim == 2 else np.diag(inertia)
        if not np.allclose(matrix, matrix.T, rtol=1e-6):
            return f"its matrix of inertia {matrix.tolist()} is not symmetric"
        low, middle, high = np.linalg.eigvalsh((matrix + matrix.T) / 2)
        if not low + middle - high > _FLAT * np.finfo(start.dtype).eps * high:
            return (
                f"its principal moments about the centre violate C < A + B: {high:.6g} is not "
                f"below {low:.6g} + {middle:.6g}"
            )
        return ""

    def value(self, x: Any, start: Array) -> Array:
        """The numbers for unknowns, in the order of `entries`, of the shape of the start."""
        z = jnp.asarray(x) - _FIRST
        mass0, center0, inertia0 = self._split(start)
        scale, t, v = jnp.exp(2 * z[0]), z[1 : 1 + self.points], z[1 + self.points :]
        if self.dimension == 2:
            radius = jnp.sqrt(inertia0 / mass0)
            inertia = inertia0 * scale * jnp.exp(2 * v[0])
        else:
            matrix = inertia0 if inertia0.ndim == 2 else jnp.diag(inertia0)
            V = _upper(jnp.trace(matrix) / 2 * jnp.eye(3, dtype=matrix.dtype) - matrix)
            radius = jnp.sqrt((V * V).sum() / mass0)
            triangle = jnp.diag(jnp.exp(v[:3]))
            if len(v) > 3:
                triangle = triangle.at[np.triu_indices(3, 1)].set(v[3:])
            changed = V @ triangle
            S = scale * (changed @ changed.T)
            inertia = jnp.trace(S) * jnp.eye(3, dtype=S.dtype) - S
        if len(self.moments) == 1:
            inertia = jnp.diagonal(inertia)
        return jnp.concatenate([(mass0 * scale)[None], center0 + radius * t, inertia.reshape(-1)])

    def _split(self, numbers: Any) -> tuple[Any, Any, Any]:
        """The mass (), the centre and the inertia."""
        first = 1 + self.points
        return numbers[0], numbers[1:first], numbers[first:].reshape(self.moments)


def _upper(S: Array) -> Array:
    """The upper triangle V with S = V V^T, entry by entry: LAPACK would leave the lanes."""
    f = jnp.sqrt(S[2, 2])
    c, e = S[0, 2] / f, S[1, 2] / f
    d = jnp.sqrt(S[1, 1] - e * e)
    b = (S[0, 1] - c * e) / d
    a = jnp.sqrt(S[0, 0] - b * b - c * c)
    zero = jnp.zeros_like(a)
    return jnp.stack([jnp.stack([a, b, c]), jnp.stack([zero, d, e]), jnp.stack([zero, zero, f])])


@dataclass(frozen=True)
class BodyNames:
    """The names of the parameters that are the mass properties of a body."""

    body: str
    dimension: int
    parameters: tuple[str, ...]  # in the order of `BodyInertia`
    others: tuple[str, ...]  # the arguments that are no parameters, but would have to be

    def names(self) -> tuple[str, ...]:
        """The names of all of them, or a ValueError if one of the numbers is not a parameter."""
        if self.others:
            verb = "is no parameter" if len(self.others) == 1 else "are no parameters"
            raise ValueError(
                f"Argument `free` names the body {self.body!r}, whose {', '.join(self.others)} "
                f'{verb} by name; give names, such as mass="m", in the body or by '
                '`from_mjcf(..., params=("mass", "center", "inertia"))`, or name single '
                "parameters in `free`."
            )
        return self.parameters


def bodies_of(system: System) -> dict[str, BodyNames]:
    """The rigid bodies of a mechanism by name; none of another system."""
    energy = system.plain.lagrangian
    if not isinstance(energy, EnergyDifference):
        return {}
    bodies: dict[str, BodyNames] = {}
    for body in energy.kinematics.bodies:
        if not isinstance(body, AbstractRigidBody):
            continue
        props, point = body.properties, body.properties.center
        others = [key for key in ("mass", "inertia") if not isinstance(getattr(props, key), str)]
        entries = (point,) if isinstance(point, str) else point if isinstance(point, tuple) else ()
        is_known = point is None or (entries and all(isinstance(x, str | float) for x in entries))
        if props.static_moment is not None or not is_known:
            others.append("center")
        names = tuple(x for x in (props.mass, *entries, props.inertia) if isinstance(x, str))
        bodies[body.name] = BodyNames(body.name, body.dimension, names, tuple(others))
    return bodies


def contact_bounds(system: System, params: Params) -> dict[str, Bounds]:
    """The bounds of numbers below which a friction would push, or beyond which a rebound gains.

    A limit of dry friction is not negative, and a restitution is from 0 to 1. A number that decides
    one of them by its sign, or by whether it is above 1, keeps to that side, if it starts there.
    """
    # The limits and restitutions that are functions of the parameters, and their largest value.
    laws = list[tuple[Callable[[Any], Any], float]]()
    for inequality in system.unilateral:
        functions: tuple[Any, ...]
        if isinstance(inequality, Unilateral):
            functions, high = (inequality.restitution,), 1.0
        else:
            functions, high = (inequality.static, inequality.kinetic), np.inf
        for fn in filter(callable, functions):
            with suppress(KeyError):  # of an input or a controller, which a fit's parameters lack
                fn(params)
                laws.append((fn, high))
    names, (leaves, structure) = leaf_names(params), jax.tree.flatten(params)
    bounds: dict[str, Bounds] = {}

    def fault(law: Callable[[Any], Any], high: float, index: int, value: float) -> float:
        changed = [np.full(np.shape(x), value) if k == index else x for k, x in enumerate(leaves)]
        values = np.ravel(np.asarray(law(jax.tree.unflatten(structure, changed)), float))
        return float(max((-values).max(), (values - high).max()))

    def is_bound(index: int, last: float, beyond: float, kinds: Any = laws) -> bool:
        return any(
            fault(law, high, index, beyond) > 0 >= fault(law, high, index, last)
            for law, high in kinds
        )

    rebounds = [law for law in laws if law[1] == 1.0]
    for k, name in enumerate(names):
        start = np.asarray(leaves[k])
        if not np.issubdtype(start.dtype, np.number):
            continue
        low, high = is_bound(k, 0.0, -1.0), is_bound(k, 1.0, 1.01, rebounds)
        bound = Bounds(0.0 if low else -np.inf, 1.0 if high else np.inf)
        if (low or high) and not bound.excludes(start):
            bounds[name] = bound
    return bounds


class FreeLeaf(NamedTuple):
    """A leaf of the parameters that is fitted, or several that are fitted together."""

    indices: tuple[int, ...]  # indices among all leaves
    transform: Bounds | BodyInertia
    entries: tuple[Entry, ...]  # the fitted ones of `start`, one for each free number

    def start(self, leaves: Sequence[Any]) -> Any:
        """The leaf, or the numbers of all of them behind each other."""
        if len(self.indices) == 1:
            return leaves[self.indices[0]]
        numpy = np if all(isinstance(leaves[k], np.ndarray) for k in self.indices) else jnp
        return numpy.concatenate([leaves[k].reshape(-1) for k in self.indices])


@dataclass(frozen=True)
class ParameterLayout:
    """The positions of the unknowns x in the parameters; hashable, without their values."""

    structure: Any
    free: tuple[FreeLeaf, ...]
    names: tuple[str, ...]  # names of all fitted numbers, p in all

    @property
    def size(self) -> int:
        """The number p of unknowns."""
        return len(self.names)

    def params(self, x: Any, leaves: Sequence[Array]) -> Params:
        """The parameters for x (p,), where `leaves` are those at the start."""
        values = list(leaves)
        for leaf, part in self._parts(x):
            value, first = leaf.transform.value(part, leaf.start(leaves)), 0
            for k in leaf.indices:
                last = first + leaves[k].size
                alone = len(leaf.indices) == 1
                values[k] = value if alone else value[first:last].reshape(leaves[k].shape)
                first = last
        return jax.tree.unflatten(self.structure, values)

    def _parts(self, x: Any) -> Iterator[tuple[FreeLeaf, Any]]:
        """Each leaf with its part of x (..., p)."""
        index = 0
        for leaf in self.free:
            yield leaf, x[..., index : index + len(leaf.entries)]
            index += len(leaf.entries)

    def first(self, leaves: Sequence[Any]) -> np.ndarray:
        """The unknowns at the start, (p,)."""
        return np.concatenate([x.transform.first(_known(x, leaves)) for x in self.free])

    def moved(self, x: Any, z: Any, leaves: Sequence[Any]) -> Any:
        """Unknowns (p,) moved by numbers z (..., p) without bounds, which they do not leave."""
        pairs = zip(self._parts(x), self._parts(z), strict=True)
        parts = [a.transform.moved(part, by, _known(a, leaves)) for (a, part), (_, by) in pairs]
        return z.__array_namespace__().concatenate(parts, axis=-1)

    def limits(self, leaves: Sequence[Any]) -> np.ndarray:
        """The bounds of the unknowns, (2, p)."""
        parts = [x.transform.limits(_known(x, leaves)) for x in self.free]
        return np.concatenate(parts, axis=1)

    def bounds(self, leaves: Sequence[Any]) -> np.ndarray:
        """The lower and upper bounds of the parameters themselves, (p, 2)."""
        return (self.limits(leaves) * self.units(leaves)).T

    def units(self, leaves: Sequence[Any]) -> np.ndarray:
        """The change of each parameter for a change of its unknown by one, (p,)."""
        return np.concatenate([x.transform.units(_known(x, leaves)) for x in self.free])

    def numbers(self, x: Array, leaves: Sequence[Array]) -> Array:
        """The numbers that are fitted, (p,), in the order of their names."""
        leaves = jax.tree.leaves(self.params(x, leaves))
        starts = [(leaf.start(leaves), leaf.entries) for leaf in self.free]
        return jnp.array([start[entry] for start, entries in starts for entry in entries])


def _known(leaf: FreeLeaf, leaves: Sequence[Any]) -> np.ndarray:
    return np.asarray(leaf.start(leaves), float)


def _interval(name: str, bound: Any) -> Bounds:
    if isinstance(bound, Bounds):
        return bound
    try:
        low, high = bound
        interval = Bounds(-inf if low is None else float(low), inf if high is None else float(high))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high) for {name!r}, None for no bound, but holds "
            f"{bound!r}."
        ) from error
    if not interval.low < interval.high:  # also for NaN
        raise ValueError(f"Argument `bounds` must have low < high for {name!r}: {bound!r}.")
    return interval


class Parameters(NamedTuple):
    """The parameters that a fit begins with, and their priors."""

    layout: ParameterLayout
    leaves: tuple[Array, ...]
    prior_mean: np.ndarray  # (p,)
    prior_sd: np.ndarray  # (p,), infinite without a prior


def parameters(
    params0: Params, *, free: Sequence[str] | None = None, bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None, bodies: Mapping[str, BodyNames] | None = None,
    default_bounds: Mapping[str, Bounds] | None = None,
) -> Parameters:  # fmt: skip
    """Validate the parameters to fit; `free` may name some of the bodies of a mechanism."""
    bounds, prior = bounds or {}, prior or {}
    names = leaf_names(params0)
    leaves, structure = jax.tree.flatten(as_dtype(params0, float))
    require_finite(params0=params0)
    if not leaves:
        raise ValueError(
            "Argument `params0` must hold the initial values of the parameters, but holds none; a "
            "bare System has none of its own."
        )
    if isinstance(free, str):
        raise TypeError(f"Argument `free` must be a sequence of names: write ({free!r},).")
    numeric = [k for k, x in enumerate(leaves) if x.dtype != bool]
    usable = [names[k] for k in numeric]
    branches = {name[:k] for name in usable for k, letter in enumerate(name) if letter in ".["}
    # what parameters and bodies are both called is the parameters
    others = {x: body for x, body in (bodies or {}).items() if x not in {*usable, *branches}}
    numbers = {x: others[x].names() for x in free or () if x in others}
    owners = dict[str, str]()  # the body that a parameter is fitted with
    for body, parts in numbers.items():
        for name in parts:
            if name in owners:  # it cannot follow both
                raise ValueError(
                    f"Argument `free` names the body {body!r}, whose parameter {name!r} has more "
                    "than one place; give each number of a body a name of its own, or name single "
                    "parameters in `free`."
                )
            owners[name] = body
    chosen = [k for k in numeric if free is None or is_within(names[k], (*free, *owners))]
    fitted_names = [names[k] for k in chosen]
    chosen_names: Any
    for argument, chosen_names, known in (
        ("free", free or (), [*usable, *sorted(branches), *others]),
        ("free", owners, usable),
        ("bounds", bounds, fitted_names),
        ("prior", prior, fitted_names),
    ):
        for name in chosen_names:
            if name not in known:
                text = not_one_of(str(name), known, "a parameter that is fitted")
                raise ValueError(
                    f"Argument `{argument}` must name parameters, but {name!r} {text}."
                )
    if not chosen:
        raise ValueError(
            "Argument `free` must leave at least one number to fit, but leaves none; name one, or "
            "write numbers instead of truth values into `params0`."
        )
    # a start value of 10 is as good as 10.0; what is not fitted, such as a count, keeps its type
    leaves = [x.astype(float) if k in chosen else x for k, x in enumerate(leaves)]
    starts = [np.asarray(x) for x in leaves]
    fitted, every, priors = list[FreeLeaf](), list[str](), list[np.ndarray]()
    for k in chosen:
        way, indices = Bounds(), tuple[int, ...]([k])
        if names[k] not in owners:
            way = _interval(names[k], {**(default_bounds or {}), **bounds}.get(names[k], Bounds()))
            if reason := way.excludes(starts[k]):
                raise ValueError(
                    f"Argument `params0` must begin inside the bounds, but {names[k]} = "
                    f"{starts[k]} {reason}; move the start or the bound."
                )
            leaf = FreeLeaf(indices, way, way.entries(starts[k].shape))
        else:
            body = owners[names[k]]
            indices = tuple(map(names.index, numbers[body]))
            if names[k] in bounds:
                raise ValueError(
                    f"Argument `bounds` must not have {names[k]!r}, which is fitted with the other "
                    f"numbers of the body {body!r}; leave it out, or name single parameters in "
                    "`free` instead of the body."
                )
            if k != min(indices):
                continue
            points = sum(starts[index].size for index in indices[1:-1])
            inertia = BodyInertia(others[body].dimension, points, starts[indices[-1]].shape)
            leaf = FreeLeaf(indices, inertia, inertia.entries(()))
            if reason := inertia.excludes(leaf.start(starts)):
                raise ValueError(
                    f"Argument `params0` must begin with the numbers of a body for {body!r}, but "
                    f"{reason}; correct the start."
                )
        # Names, means and standard deviations of all entries of the leaves, behind each other.
        shapes = [(names[index], starts[index].shape) for index in indices]
        pairs = [np.reshape(_prior(x, prior.get(x), shape, way), (2, -1)) for x, shape in shapes]
        flat = [x for name, shape in shapes for x in entry_names(name, np.ndindex(*shape))]
        places = [x for (x,) in leaf.entries] if names[k] in owners else range(len(flat))
        every += [flat[place] for place in places]
        priors += [np.concatenate(pairs, axis=1)[:, place] for place in places]
        fitted.append(leaf)
    layout = ParameterLayout(structure, tuple(fitted), tuple(every))
    return Parameters(layout, tuple(leaves), *np.reshape(priors, (-1, 2)).T)


def _prior(
    name: str, prior: Any, shape: tuple[int, ...], leaf_transform: Bounds
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a leaf, infinite without a prior."""
    if prior is None:
        return np.zeros(shape), np.full(shape, np.inf)
    try:
        mean, sd = (np.broadcast_to(np.asarray(x, float), shape) for x in prior)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `prior` must hold (mean, standard deviation) for {name!r}, numbers or "
            f"arrays of shape {shape}; but holds {prior!r}."
        ) from error
    if not (np.isfinite(mean).all() and (sd > 0).all()):
        raise ValueError(
            f"Argument `prior` must hold a finite mean and a positive standard deviation for "
            f"{name!r}, but holds {prior!r}."
        )
    if reason := leaf_transform.excludes(mean):
        raise ValueError(
            f"Argument `prior` must have its mean inside the bounds, but {name} {reason}, and its "
            f"prior has {mean}; move the prior or the bound."
        )
    return mean, sd
