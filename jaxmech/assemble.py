"""`assemble`: the consistent state nearest to a guess."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.checks import is_known, require_finite, require_kind
from jaxmech.linalg import QR, Cholesky, cholesky, times, with_rows
from jaxmech.manifold import metric_mass, near, violations
from jaxmech.system import Params, System
from jaxmech.traits import traits

Level = Callable[..., Array]  # level(x, *context), zero on the constraints


def assemble(
    system: System,
    q_guess: Any,
    v_guess: Any,
    t: Any = 0.0,
    params: Params = None,
    *,
    fixed: Sequence[str] = (),
    fixed_velocities: Sequence[str] | None = None,
) -> tuple[Array, Array]:
    """The state on the constraints that is nearest to a guess in the mass metric.

    Minimizes (q - q_guess)^T M (q - q_guess) subject to the position constraints, then the same
    for v and the velocity constraints, with M at the guess. Pure: works under `jit` and `vmap`,
    and its derivative is that of the minimizer (implicit function theorem).

    Args:
        system: the system, with n coordinates.
        q_guess: coordinates, shape (n,).
        v_guess: velocities, shape (n,).
        t: time [s].
        params: parameters.
        fixed: names of coordinates that keep their guess.
        fixed_velocities: names of coordinates whose velocity keeps its guess; by default `fixed`.

    Returns:
        Consistent q (n,) and v (n,).

    Raises:
        TypeError: `system` is no `System`, or names are not in a sequence.
        ValueError: a name is unknown, a shape is wrong, a guess is not finite, or a constraint
            cannot be met (not under `jit` or `vmap`: there `simulate` reports the state as
            `INCONSISTENT`).

    Example:
        >>> from jaxmech import models
        >>> model = models.pendulum()
        >>> q, v = assemble(model.system, [0.6, -0.9], [1.0, 0.0], 0.0, model.params, fixed=["x1"])
        >>> print(q, v)
        [ 0.6 -0.8] [1.   0.75]
    """
    require_kind("system", system, System, "System(...)")
    q, v, t, params = system.arguments(q_guess, v_guess, t, params, ("q_guess", "v_guess"))
    velocity_names = fixed if fixed_velocities is None else fixed_velocities
    free_q = _free(system, "fixed", fixed)
    free_v = _free(system, "fixed_velocities", velocity_names)
    require_finite(q_guess=q, v_guess=v, t=t, params=params)
    q, v = _assemble(system, free_q, free_v, q, v, t, params)
    if is_known((q, v, t, params)):
        held = {"position": tuple(fixed), "velocity": tuple(velocity_names)}
        _require_met(system, q, v, t, params, held)
    return q, v


@partial(jax.jit, static_argnames=("system", "free_q", "free_v"))
def _assemble(
    system: System,
    free_q: tuple[int, ...],
    free_v: tuple[int, ...],
    q: Array,
    v: Array,
    t: Array,
    params: Params,
) -> tuple[Array, Array]:
    singular = traits(system, q, v, t, params).singular_mass
    M = metric_mass(system, q, v, t, params, singular_mass=singular)
    q = _with_free(system.position_level, q, free_q, M, (t, params))
    v = _with_free(
        lambda v, q, t, p: system.velocity_level(q, v, t, p), v, free_v, M, (q, t, params)
    )
    return q, v


def _with_free(
    level: Level, x: Array, free: tuple[int, ...], M: Array, context: tuple[Any, ...]
) -> Array:
    """The nearest point with only the free components moving."""
    index = np.array(free, dtype=int)
    if not free or jax.eval_shape(level, x, *context).shape == (0,):
        return x

    def whole(y: Array, x: Array) -> Array:
        """x with y in its free places."""
        return jnp.stack([y[free.index(i)] if i in free else x[i] for i in range(x.size)])

    def inner(y: Array, x: Array, *context: Any) -> Array:
        return level(whole(y, x), *context)

    inner_mass = M[np.ix_(index, index)]
    return whole(_nearest(inner, x[index], inner_mass, (x, *context)), x)


def _nearest(level: Level, guess: Array, M: Array, context: tuple[Any, ...]) -> Array:
    """argmin (y - guess)^T M (y - guess) subject to level(y, *context) = 0.

    Gauss-Newton steps reach the surface. Newton's method on the stationarity conditions, which
    know the curvature of the surface, finds the nearest point, and Gauss-Newton steps take it to
    round-off; where that point is no better than the first, the first is kept. All this happens
    at frozen arguments; the derivative is that of one last Newton step, which is zero in value.
    """

    def stationarity(z: Array, guess: Array, M: Array, context: tuple[Any, ...]) -> Array:
        y, multipliers = z[: guess.size], z[guess.size :]
        value, pull = jax.vjp(lambda y: level(y, *context), y)
        return jnp.concatenate([M @ (y - guess) - pull(multipliers)[0], value])

    start, mass, frozen = jax.lax.stop_gradient((guess, M, context))
    newton_matrix = jax.jacfwd(lambda z: stationarity(z, start, mass, frozen))

    def newton(_: Array, z: Array) -> Array:
        miss = stationarity(z, start, mass, frozen)
        return z - QR().factor(newton_matrix(z)).smallest(miss)[0]

    def surface(y: Array) -> Array:
        return level(y, *frozen)

    def with_multipliers(y: Array) -> Array:
        A = jax.jacfwd(surface)(y)
        pull = times(A, times(mass, y - start))
        return jnp.concatenate([y, QR().factor(A).smallest(pull)[1]])

    root = cholesky(mass)
    first = _onto(surface, start, mass, root, iterations=30)
    z = jax.lax.fori_loop(0, 10, newton, with_multipliers(first))
    polished = _onto(surface, z[: start.size], mass, root, iterations=3)
    y = _nearer(surface, start, mass, polished, first)
    z = with_multipliers(y)
    last = jax.lax.stop_gradient(QR().factor(newton_matrix(z)))
    step, _ = last.smallest(stationarity(z, guess, M, context))
    return y - (step - jax.lax.stop_gradient(step))[: start.size]


def _onto(
    surface: Callable[[Array], Array], y: Array, M: Array, root: Cholesky, iterations: int
) -> Array:
    """Gauss-Newton steps towards surface(y) = 0, each shortened to what helps most."""
    lengths = 0.5 ** jnp.arange(6, dtype=y.dtype)

    def step(_: Array, y: Array) -> Array:
        A = jax.jacfwd(surface)(y)
        towards, _ = with_rows(M, root, A, QR()).smallest(surface(y))
        trials = y[None] - lengths[:, None] * towards[None]
        return trials[jnp.nanargmin(jnp.abs(jax.vmap(surface)(trials)).sum(1))]

    return jax.lax.fori_loop(0, iterations, step, y)


def _nearer(
    surface: Callable[[Array], Array], start: Array, M: Array, new: Array, old: Array
) -> Array:
    """The new point if it is on the surface and no farther away than the old one."""

    def cost(y: Array) -> Array:
        return (y - start) @ (M @ (y - start))

    on_surface = near(surface(new), jax.jacfwd(surface)(new), new)
    return jnp.where(on_surface & (cost(new) <= cost(old) * (1 + 1e-6)), new, old)


def _free(system: System, argument: str, names: Sequence[str]) -> tuple[int, ...]:
    if isinstance(names, str):
        raise TypeError(
            f"Argument `{argument}` must be a sequence of names, but is {names!r}; "
            f"write ({names!r},)."
        )
    for name in names:
        if name not in system.coordinates:
            raise ValueError(
                f"Argument `{argument}` must hold names of coordinates, but holds {name!r}; the "
                f"coordinates are {', '.join(system.coordinates)}."
            )
    return tuple(i for i, name in enumerate(system.coordinates) if name not in names)


def _require_met(
    system: System, q: Array, v: Array, t: Array, params: Params, fixed: dict[str, tuple[str, ...]]
) -> None:
    for violation in violations(system, q, v, t, params):
        held = fixed[violation.level]
        raise ValueError(
            f"Constraint {violation.name!r} cannot be met at t = {float(t):g}: the nearest state "
            f"found leaves its {violation.level} residual at {violation.size:.3g}"
            + (f" with {', '.join(held)} held fixed; release one of them" if held else "")
            + f" {'or' if held else ';'} give a closer guess, or check that the constraints agree."
        )
