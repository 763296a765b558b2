"""The search for one guess whose numbers are known, on the host.

Compiled functions evaluate the constraints, their Jacobian and their curvature, numpy does the
algebra. So the code that is compiled grows with the number of constraints alone, where the whole
search as one program holds every product and factorization of n x n matrices.
"""

from functools import reduce
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import jacobian, native_program
from jaxmech.linalg import rows_on_host
from jaxmech.state.nearest import LENGTHS, RETURNS, STEPS, AbstractSearch, Plan
from jaxmech.system import Params, System, levels_at_known, near
from jaxmech.utils.arrays import AnyArray, HostArray
from jaxmech.utils.checks import has_finite_numbers


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
            levels = levels_at_known(self.system, *state)
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
        """The second derivative of multipliers . level; NaN where y or they are not finite."""
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
