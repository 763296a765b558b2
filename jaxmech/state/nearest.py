"""The point of a surface level(y) = 0 that is nearest to a guess, and its derivative.

In coordinates w in which M is the identity, y = guess + T w, this is the point of the surface
nearest to the origin. Gauss-Newton steps reach the surface; a damped Newton method then moves along
it (Absil, Mahony and Sepulchre 2008, chapters 6 and 7). With C = A T, the projector P onto the
tangent space of the surface and the multipliers of C^T lambda = (1 - P) w, a step d solves

    (B + mu) d = -P w,    B = P H P + 1 - P,    H = 1 - T^T (d2/dy2 lambda . level) T

and Gauss-Newton steps return to the surface. If the result is not nearer to the guess the step is
rejected and mu grows. So the distance never grows, and the final B decides whether it is a minimum.
The formulas are those of `AbstractSearch`, for traced numbers in `_Problem`. For one guess whose
numbers are known, `SearchOfKnown`, compiled functions evaluate the constraints, their Jacobian and
their curvature, and numpy does the algebra on the host. So the code that is compiled grows with the
number of constraints alone, where the whole search as one program holds every product and
factorization of n x n matrices.
"""

import abc
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import jacobian, native_program
from jaxmech.linalg import QR, cholesky, diagonal, matvec, metric, rows_on_host
from jaxmech.system import KnownState, Params, System, extents_of_level, near
from jaxmech.utils.arrays import AnyArray, HostArray
from jaxmech.utils.checks import has_finite_numbers

RETURNS = 30  # largest number of Gauss-Newton steps to the surface
STEPS = 60  # largest number of Newton steps along it
LENGTHS = 0.5 ** np.arange(6)  # of a Gauss-Newton step

Level = Callable[..., Array]  # level(y, *context), zero on the surface


class Plan(NamedTuple):
    """A step to try from a point, in coordinates w.

    Attributes:
        step: the step, (n,).
        promised: decrease of half the squared distance.
        damping: mu.
        is_minimum: whether the point counts as a minimum.
        is_last: whether the search ends at the point.
    """

    step: AnyArray
    promised: AnyArray
    damping: AnyArray
    is_minimum: AnyArray
    is_last: AnyArray


class SurfacePoint(NamedTuple):
    """Quantities of the surface at a point, in coordinates w."""

    reached: AnyArray  # whether the point lies on it
    rows: Any  # the factorized C
    w: AnyArray  # (n,)
    multipliers: AnyArray  # (m,)
    P: AnyArray  # (n, n)
    H: AnyArray  # (n, n)
    B: AnyArray  # (n, n)


class AbstractSearch(abc.ABC):
    """The search from one guess; subclasses say how numbers are computed.

    Attributes:
        guess: the guess, (n,).
        T: from coordinates w to changes of y, (n, n).
        root: the inverse of T.
        one: the identity, (n, n).
        xp: `jax.numpy` or `numpy`.
        times: the product of a matrix and a vector.
        product: the product of matrices.
        diagonal: the diagonal of a matrix.
        length: the length of a vector.
        row_space: the factors of C.
    """

    guess: AnyArray
    T: AnyArray
    root: AnyArray
    one: AnyArray
    xp: Any
    times: Callable[..., Any]
    product: Callable[..., Any]
    diagonal: Callable[..., Any]
    length: Callable[..., Any]
    row_space: Callable[..., Any]

    @abc.abstractmethod
    def evaluated(self, y: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """The residuals, their Jacobian, and whether y is on the surface."""

    @abc.abstractmethod
    def curvature(self, y: AnyArray, multipliers: AnyArray) -> AnyArray:
        """The second derivative of multipliers . level."""

    @abc.abstractmethod
    def solved(
        self, B: AnyArray, damping: AnyArray, raised: AnyArray, slope: AnyArray, push: AnyArray
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Whether B is definite, and nearly so; and the step.

        The step solves (B + damping) d = -slope if B is definite; otherwise it solves
        (B + raised) d = -slope - push.
        """

    @property
    def eps(self) -> float:
        """Round-off of the type of the guess."""
        return float(np.finfo(self.guess.dtype).eps)

    def point(self, y: AnyArray) -> SurfacePoint:
        """Evaluate the surface at y."""
        _, A, reached = self.evaluated(y)
        w, C = self.times(self.root, y - self.guess), self.product(A, self.T)
        rows = self.row_space(C)
        P = self.one - self.product(rows.U.T, rows.U)
        multipliers = rows.min_norm_solve(self.times(C, w))[1]
        H = self.one - self.product(self.T.T, self.curvature(y, multipliers), self.T)
        B = self.product(P, H, P) + self.one - P
        return SurfacePoint(reached, rows, w, multipliers, P, H, B)

    def size(self, y: AnyArray) -> AnyArray:
        """The length scale of round-off and tolerances."""
        away = self.length(self.times(self.root, y - self.guess))
        return away + self.length(self.times(self.root, y))

    def is_nearer(
        self, y: AnyArray, old: SurfacePoint, new: SurfacePoint, promised: AnyArray
    ) -> AnyArray:
        """Whether a step from y has led nearer to the guess."""
        # Half the difference of the squared distances, without the cancellation of their
        # subtraction.
        nearer = (old.w - new.w) @ (old.w + new.w) / 2
        round_off = 10 * self.eps * self.length(old.w) * self.size(y)
        # Sufficient decrease (Armijo), up to round-off: at the minimum no step reduces it further.
        return new.reached & (nearer + round_off >= 1e-4 * promised)

    def planned(self, y: AnyArray, point: SurfacePoint, accepted: AnyArray, previous: Plan) -> Plan:
        """The next step, and whether it is so small that y is the minimum."""
        xp = self.xp
        slope, size = self.times(point.P, point.w), self.size(y)
        # Gershgorin discs: no eigenvalue of B is below `lowest` or above `highest`.
        centers = self.diagonal(point.B)
        radii = xp.abs(point.B).sum(1) - xp.abs(centers)
        lowest, highest = xp.min(centers - radii), xp.max(xp.abs(centers) + radii)
        # Where B is definite near the minimum the damping dies out, and Newton's method is
        # quadratic.
        damping = xp.where(accepted, previous.damping / 8, 4 * previous.damping + highest / 16)
        damping = xp.where(damping < highest / 100, 0 * damping, damping)
        # The gradient vanishes at a saddle on a line of symmetry; a push moves y off it.
        push = 1e-2 * self.length(point.w) * self.times(point.P, xp.asarray(some_direction(y)))
        raised = damping + self.eps**0.5 - lowest
        definite, nearly, step = self.solved(point.B, damping, raised, slope, push)
        promised = -(slope @ step) - step @ self.times(point.B, step) / 2
        length = self.length(step)
        small = definite & (damping == 0) & (length <= self.eps**0.5 * size)
        slower = (length >= 0.5 * self.length(previous.step)) | ~accepted
        least = small & ((length <= 16 * self.eps * size) | slower)
        flat = ~definite & nearly & (self.length(slope) <= self.eps**0.5 * size)
        return Plan(step, xp.maximum(promised, 0.0), damping, small | flat, least | ~point.reached)


def some_direction(y: Any) -> np.ndarray:
    """A vector of fixed pseudo-random numbers, of the shape and type of y."""
    return np.random.default_rng(0).uniform(-1, 1, y.shape).astype(y.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def nearest(
    level: Level, guess: Float[Array, " n"], M: Float[Array, " n n"], context: tuple[Any, ...]
) -> Float[Array, " n"]:
    """A local minimum of (y - guess)^T M (y - guess) subject to level(y, *context) = 0.

    Args:
        level: function of the surface, from (n,) to (m,); it must not close over traced values.
        guess: shape (n,).
        M: metric, positive definite, shape (n, n).
        context: further arguments of `level`.

    Returns:
        A point no farther away than the result of Gauss-Newton steps alone; a point off the surface
        if they do not reach it, and NaN if no minimum was found on it. Its derivative, of any
        order, is that of the minimizer (implicit function theorem): NaN where the minimum is
        degenerate, zero where none was found.
    """
    problem = _Problem(level, guess, M, context)
    zero, false = jnp.zeros((), guess.dtype), jnp.asarray(False)
    nowhere = jax.tree.map(jnp.zeros_like, jax.eval_shape(problem.point, guess))
    plan = Plan(jnp.zeros_like(guess), zero, zero, false, false)
    start = _Search(guess, nowhere, plan, jnp.zeros((), int))
    search = jax.lax.while_loop(
        lambda s: ~s.plan.is_last & (s.count < STEPS), problem.advance, start
    )
    return jnp.where(search.plan.is_minimum | ~search.point.reached, search.y, jnp.nan)


@nearest.defjvp
def _nearest_jvp(level: Level, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Differentiate the optimality conditions: across the surface and along it."""
    y = nearest(level, *primals)
    is_finite = jnp.isfinite(y).all()
    inside = jnp.where(is_finite, y, jax.lax.stop_gradient(primals[0]))
    problem = _Problem(level, *primals)
    point = problem.point(inside)

    def conditions(guess: Array, M: Array, context: tuple[Any, ...]) -> tuple[Array, Array]:
        value, pull = jax.vjp(lambda y: level(y, *context), inside)
        return value, matvec(M, inside - guess) - pull(point.multipliers)[0]

    _, (value, pull) = jax.jvp(conditions, primals, tangents)
    across = -point.rows.min_norm_solve(value)[0]
    along = matvec(problem.T.T, pull) + matvec(point.H, across)
    factor = cholesky(point.B)
    d = across - factor.upper(factor.lower(matvec(point.P, along)))
    regular = cholesky(point.B - problem.eps ** (2 / 3) * problem.one).definite
    mask = jnp.where(regular, 1.0, jnp.nan)  # a degenerate minimum has no derivative
    return y, matvec(problem.T, d) * jnp.where(is_finite & point.reached, mask, 0.0)


def nearest_affine(
    level: Level, guess: Float[Array, " n"], M: Float[Array, " n n"], context: tuple[Any, ...]
) -> Float[Array, " n"]:
    """`nearest` for a level that is affine in y: a linear solve; least squares if none is zero."""

    def corrected(_: Array, y: Array) -> Array:
        rows = metric(M, jax.jacfwd(level)(y, *context), QR())
        return y - rows.min_norm_solve(level(y, *context))[0]

    # The second one corrects round-off. As a loop it becomes native code.
    return jax.lax.fori_loop(0, 2, corrected, guess)


def _row_by_row(*factors: Array) -> Array:
    """Multiply matrices in a loop over the rows of the first."""
    # Its code is shorter than that of the whole product by a factor of the number of rows.
    first, *remaining = factors

    def row_of_product(row: Array) -> Array:
        for factor in remaining:
            row = matvec(factor.T, row)
        return row

    return jax.lax.map(row_of_product, first)


def _length(x: Array) -> Float[Array, ""]:
    squared = x @ x
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)


class _Search(eqx.Module):
    """The nearest point so far, and the next step to try from it."""

    y: Float[Array, " n"]
    point: SurfacePoint
    plan: Plan
    count: Int[Array, ""]  # number of steps; before the first one y is the guess


class _Problem(AbstractSearch):
    """The minimization problem, with the functions of a point y that its solution needs."""

    xp = jnp
    times = staticmethod(matvec)  # sums of products, which XLA fuses over a batch
    product = staticmethod(_row_by_row)
    diagonal = staticmethod(diagonal)
    length = staticmethod(_length)
    row_space = staticmethod(QR().factor)

    def __init__(self, level: Level, guess: Array, M: Array, context: tuple[Any, ...]) -> None:
        self.level = jax.jit(lambda y: level(y, *context))  # traced once, not once per derivative
        self.guess = guess
        identity = jnp.eye(guess.size, dtype=guess.dtype)
        self.one = identity
        factor = cholesky(M)
        self.T = factor.lower(identity).T
        self.root = factor.transposed()  # the inverse of T: w = root (y - guess)
        self.extents = jax.lax.stop_gradient(extents_of_level(self.level, guess, M))

    def evaluated(self, y: Array) -> tuple[Array, Array, Array]:
        value, A = self.level(y), jacobian(self.level, y)
        return value, A, near(value, A, y, self.extents)

    def curvature(self, y: Array, multipliers: Array) -> Array:
        def pulled(y: Array) -> Array:
            return jax.vjp(self.level, y)[1](multipliers)[0]

        return jacobian(pulled, y)

    def advance(self, search: _Search) -> _Search:
        """Accept the step if it leads nearer to the guess, and compute the next one."""
        y = self.back(search.y + matvec(self.T, search.plan.step))
        point, old = self.point(y), search.point
        better = self.is_nearer(search.y, old, point, search.plan.promised)
        accepted = better | (search.count == 0)
        chosen = (y, point), (search.y, old)
        y, point = jax.tree.map(partial(jnp.where, accepted), *chosen)
        return _Search(y, point, self.planned(y, point, accepted, search.plan), search.count + 1)

    def solved(
        self, B: Array, damping: Array, raised: Array, slope: Array, push: Array
    ) -> tuple[Array, Array, Array]:
        """By elimination, in a loop over all four shifts."""

        def solution(trial: tuple[Array, Array]) -> tuple[Array, Array]:
            shift, pushed = trial
            return _solution(B + shift * self.one, -(slope + pushed * push))

        # The first two only test whether B is definite, and nearly so. The last is definite by
        # Gershgorin bounds, for an indefinite B, and is the only one with a push.
        shifts = jnp.stack([0 * damping, 0 * damping + self.eps**0.25, damping, raised])
        definite, steps = jax.lax.map(solution, (shifts, jnp.arange(4, dtype=B.dtype) // 3))
        return definite[0], definite[1], jnp.where(definite[0], steps[2], steps[3])

    def back(self, y: Array) -> Array:
        """Take Gauss-Newton steps with line search until none reduces the residual."""
        lengths = jnp.asarray(LENGTHS, y.dtype)

        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            y, _, count = state
            value, A = self.level(y), jacobian(self.level, y)
            d = QR().factor(_row_by_row(A, self.T)).min_norm_solve(value)[0]
            across, large = matvec(self.T, d), _length(d) > self.eps**0.5 * self.size(y)
            trials = y[None] - lengths[:, None] * across[None]
            violations = jnp.nan_to_num(jnp.abs(jax.vmap(self.level)(trials)).sum(1), nan=jnp.inf)
            helps = large | (jnp.min(violations) < jnp.abs(value).sum())
            # A mask, since lanes have no indices.
            best = jnp.arange(lengths.size)[:, None] == jnp.argmin(violations)
            return jnp.where(helps, jnp.where(best, trials, 0.0).sum(0), y), helps, count + 1

        start = y, jnp.asarray(True), jnp.zeros((), int)
        return jax.lax.while_loop(lambda s: s[1] & (s[2] < RETURNS), step, start)[0]


def _solution(B: Array, r: Array) -> tuple[Bool[Array, ""], Float[Array, " n"]]:
    """Solve B x = r for a symmetric B; also whether B is positive definite."""
    indices = jnp.arange(r.size)
    threshold = 4 * r.size * jnp.finfo(B.dtype).eps * jnp.abs(diagonal(B))  # as in `cholesky`

    def eliminate(work: tuple[Array, Array], column: tuple[Array, Array]) -> Any:
        (W, r), (j, smallest) = work, column
        row, right_side = W[j], r[j]
        pivot = row[j]
        singular = pivot <= smallest  # false for NaN, which is passed on to the result
        row = row / jnp.where(singular, 1.0, pivot)
        lower = jnp.where(indices > j, W[:, j], 0.0)
        right_side = right_side / jnp.where(singular, 1.0, pivot)
        return (W - lower[:, None] * row[None], r - lower * right_side), (singular, row, right_side)

    _, (singular, rows, rights) = jax.lax.scan(eliminate, (B, r), (indices, threshold))

    def substitute(x: Array, line: tuple[Array, Array, Array]) -> tuple[Array, None]:
        j, row, right_side = line
        eliminated = jnp.where(indices > j, row * x, 0.0).sum()
        return jnp.where(indices == j, right_side - eliminated, x), None

    x, _ = jax.lax.scan(substitute, jnp.zeros_like(r), (indices, rows, rights), reverse=True)
    return ~singular.any(), x


@native_program("system", differ=(True, True, False, False))
def _quasi_velocity_level(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array]:
    state = q, v, t, params
    return system.dynamics.velocity_level(*state), system.dynamics.velocity_jacobian(*state)


@native_program("system", "is_of_velocities", differ=(True, True, True, False, False))
def _curvature(
    system: System, is_of_velocities: bool, multipliers: Array, q: Array, v: Array, t: Array,
    params: Params,
) -> Array:  # fmt: skip
    def level(x: Array) -> Array:
        if is_of_velocities:
            return system.dynamics.velocity_level(q, x, t, params)
        return system.dynamics.position_level(x, t, params)

    def pulled(x: Array) -> Array:
        return jax.vjp(level, x)[1](multipliers)[0]

    return jacobian(pulled, v if is_of_velocities else q)


class _Factor(NamedTuple):
    """`linalg.Cholesky` on the host."""

    L: HostArray
    definite: bool

    def solve(self, r: HostArray) -> HostArray:
        return np.linalg.solve(self.L.T, np.linalg.solve(self.L, r))


def _factorized(M: HostArray) -> _Factor:
    L, definite = np.zeros_like(M), True
    smallest = 4 * len(M) * np.finfo(M.dtype).eps * np.abs(np.diagonal(M))
    for j in range(len(M)):
        column = M[j:, j] - L[j:, :j] @ L[j, :j]
        singular = column[0] <= smallest[j]
        definite = definite and not singular
        pivot = np.sqrt(1 if singular else column[0])
        L[j:, j] = column / pivot
        L[j, j] = pivot
    return _Factor(L, bool(definite))


class SearchOfKnown(AbstractSearch):
    """The search for one guess on the host, on the position or the velocity level of a system.

    Args:
        system: the system.
        state: q, v, t and params; the guess among them is the other components' value, too.
        free: indices of the components that may change.
        extents: the extents of all components.
        M: the metric of all components, shape (n, n).
        is_of_velocities: whether it is the velocity level, a function of v.
    """

    xp = np
    times = staticmethod(np.matmul)
    product = staticmethod(lambda *factors: reduce(np.matmul, factors))
    diagonal = staticmethod(np.diagonal)
    length = staticmethod(lambda x: np.sqrt(x @ x))  # of the type of the vector
    row_space = staticmethod(rows_on_host)

    def __init__(
        self, system: System, state: tuple[Any, Any, Any, Params], free: tuple[int, ...],
        extents: HostArray, M: HostArray, *, is_of_velocities: bool = False,
    ) -> None:  # fmt: skip
        self.system, self.state, self.is_of_velocities = system, state, is_of_velocities
        self.free = list(free)
        self.extents = extents[self.free]
        self.all = np.asarray(state[is_of_velocities])
        self.guess = self.all[self.free]
        self.one = np.eye(self.guess.size, dtype=self.guess.dtype)
        self.root = _factorized(M[np.ix_(free, free)]).L.T
        self.T = np.linalg.solve(self.root, self.one)

    def nearest(self, *, is_affine: bool = False) -> HostArray:
        """All components of the nearest point, by linear equations if the level is affine."""
        x = np.array(self.all)
        with np.errstate(all="ignore"):
            x[self.free] = self.projection() if is_affine else self.minimum()
        return x

    def evaluated(self, y: HostArray) -> tuple[HostArray, HostArray, np.bool]:
        """The residuals, their Jacobian, and whether y is on the surface; NaN for NaN."""
        is_finite = has_finite_numbers(y)
        state = self._with(y if is_finite else self.guess)
        if self.system.velocities:
            level = tuple(map(np.asarray, _quasi_velocity_level(self.system, *state)))
        else:
            levels = KnownState(self.system, *state).levels
            level = (
                (levels.velocity, levels.A_velocity)
                if self.is_of_velocities
                else (levels.position, levels.A_position)
            )
        value, A = level[0], level[1][:, self.free]
        if not is_finite:
            return np.full_like(value, np.nan), np.full_like(A, np.nan), np.False_
        return value, A, np.bool(near(value, A, y, self.extents, xp=np))

    def curvature(self, y: HostArray, multipliers: HostArray) -> HostArray:
        if not has_finite_numbers((y, multipliers)):
            return np.full((y.size, y.size), np.nan, y.dtype)
        bent = _curvature(self.system, self.is_of_velocities, multipliers, *self._with(y))
        return np.asarray(bent)[np.ix_(self.free, self.free)]

    def _with(self, y: HostArray) -> tuple[Any, Any, Any, Params]:
        q, v, t, params = self.state
        x = np.array(self.all)
        x[self.free] = y
        return (q, x, t, params) if self.is_of_velocities else (x, v, t, params)

    def minimum(self) -> HostArray:
        """The nearest point; NaN if there is none on the surface that was reached."""
        y = self.back(self.guess)
        point, zero, false = self.point(y), np.zeros((), y.dtype), np.array(False)
        start = Plan(np.zeros_like(y), zero, zero, false, false)
        plan = self.planned(y, point, np.array(True), start)
        for _ in range(STEPS - 1):
            if plan.is_last:
                break
            trial = self.back(y + self.T @ plan.step)
            trial_point = self.point(trial)
            accepted = self.is_nearer(y, point, trial_point, plan.promised)
            y, point = (trial, trial_point) if accepted else (y, point)
            plan = self.planned(y, point, accepted, plan)
        return y if plan.is_minimum or not point.reached else np.full_like(y, np.nan)

    def projection(self) -> HostArray:
        """The nearest point of an affine surface."""
        y = self.guess
        for _ in range(2):  # the second one corrects round-off
            value, A, _ = self.evaluated(y)
            y = y - self.T @ rows_on_host(A @ self.T).min_norm_solve(value)[0]
        return y

    def solved(
        self, B: HostArray, damping: AnyArray, raised: AnyArray, slope: HostArray, push: HostArray
    ) -> tuple[AnyArray, AnyArray, HostArray]:
        """By Cholesky factors, of which only the necessary ones are computed."""
        factor = _factorized(B)
        if factor.definite:
            damped = _factorized(B + damping * self.one) if damping else factor
            return np.array(True), np.array(True), -damped.solve(slope)
        nearly = _factorized(B + self.eps**0.25 * self.one).definite
        step = -_factorized(B + raised * self.one).solve(slope + push)
        return np.array(False), np.array(nearly), step

    def back(self, y: HostArray) -> HostArray:
        """Take Gauss-Newton steps with line search until none reduces the residual."""
        value, A, _ = self.evaluated(y)
        for _ in range(RETURNS):
            d = rows_on_host(A @ self.T).min_norm_solve(value)[0]
            across, large = self.T @ d, self.length(d) > self.eps**0.5 * self.size(y)
            violation, least, best = np.abs(value).sum(), np.inf, (y, value, A)
            for length in LENGTHS.astype(y.dtype):
                trial = y - length * across
                at_trial = self.evaluated(trial)
                new = np.nan_to_num(np.abs(at_trial[0]).sum(), nan=np.inf)
                if new < least or length == 1:
                    least, best = new, (trial, *at_trial[:2])
                # Half of a step leaves about half of the residual.
                if new <= 0.1 * violation or not large:
                    break
            if not (large or least < violation):
                break
            y, value, A = best
        return y
