"""Consistent states: `assemble` finds the nearest to a guess, `begin` that of a recording."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import native_call, native_program, unoptimized
from jaxmech.state.nearest import Level, SearchOfKnown, nearest, nearest_affine
from jaxmech.state.stabilization import Projection, coordinate_metric, metric_mass
from jaxmech.system import (
    Holonomic,
    KnownState,
    Nonholonomic,
    Params,
    Subject,
    System,
    with_mass_rank,
    with_params,
)
from jaxmech.utils.checks import (
    coordinate_indices,
    is_known,
    naming_missing,
    require_finite,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import is_inside_a_program, jit_of

Start = Callable[[Array, Array, Params], tuple[Array, Array]]
_coordinate_metric = native_program("system", differ=(True, True, True, False, False))(
    coordinate_metric
)
CORRECTIONS = 6  # Newton steps onto the constraints: from an error of 20 %, five reach round-off


@with_standard_promotion
def assemble(
    system: Subject,
    q_guess: Any,
    v_guess: Any,
    t: Any = 0.0,
    params: Params = None,
    *,
    fixed: Sequence[str] = (),
    fixed_velocities: Sequence[str] | None = None,
) -> tuple[Array, Array]:
    """The state on the constraints that is nearest to a guess in the mass metric.

    Minimizes (q - q_guess)^T M (q - q_guess) subject to the position constraints, and then the same
    for v subject to the velocity constraints, with M at the guess. A pure function: it works under
    `jit` and `vmap`, and its derivatives are those of the minimizer (implicit function theorem).
    There it is compiled as one program, which takes a minute for about 1,000 equations times
    coordinates.

    The result is a local minimum, verified by first and second derivatives. A loop that closes in
    several ways may have a nearer one, and nothing is said where the state found lies on another
    branch than the pose that the guess was made from (`docs/limits.md`): `control.kinematics`
    follows one branch. At a degenerate minimum, such as for a guess at a center of curvature,
    derivatives are NaN.

    Args:
        system: the system, with n coordinates.
        q_guess: coordinates, shape (n,).
        v_guess: velocities, shape (n,), or the k quasi-velocities.
        t: time [s].
        params: parameters.
        fixed: names of coordinates that keep their guess.
        fixed_velocities: names of coordinates whose velocity keeps its guess; by default `fixed`.
            With quasi-velocities, names of quasi-velocities; by default none.

    Returns:
        Consistent q, shape (n,), and v, in the shape of its guess.

    Raises:
        TypeError: if `system` is not a `System`, or the names are not a sequence.
        ValueError: if a name is unknown, a shape is wrong, a guess is not finite, a constraint
            cannot be met, or no nearest state was found. Under `jit` and `vmap`, a state that
            violates the constraints is returned, which `simulate` reports as `INCONSISTENT`; where
            no nearest one was found q or v is NaN, which it reports as `NONFINITE`.

    Example:
        >>> from jaxmech import models
        >>> model = models.pendulum()
        >>> q, v = assemble(model.system, [0.6, -0.9], [1.0, 0.0], 0.0, model.params, fixed=["x1"])
        >>> print(q, v)
        [ 0.6 -0.8] [1.   0.75]
    """
    system, params = with_params(system, params)
    q, v, t, params = system.arguments(q_guess, v_guess, t, params, ("q_guess", "v_guess"))
    velocity_names = fixed if fixed_velocities is None and not system.velocities else ()
    velocity_names = velocity_names if fixed_velocities is None else fixed_velocities
    names = system.velocity_names if system.velocities else system.coordinates
    fixed_q = coordinate_indices("fixed", fixed, system.coordinates)
    fixed_v = coordinate_indices("fixed_velocities", velocity_names, names)
    require_finite(q_guess=q, v_guess=v, t=t, params=params)
    # Constraints do not change states of first order, nor their integrals.
    n_states = system.dynamics.n_states
    free_q = tuple(i for i in range(system.n - n_states) if i not in fixed_q)
    free_v = tuple(i for i in range(len(names) - n_states) if i not in fixed_v)
    if not system.plain.constraints:
        return q, v
    if not is_known((q, v, t, params)) or is_inside_a_program():
        return _assemble(system, free_q, free_v, q, v, t, params)
    with unoptimized():  # one guess, for which the code runs only briefly
        is_known_program = not system.velocities or _is_affine(system)
        assembled = _assemble_known if is_known_program else _assemble
        q, v = assembled(system, free_q, free_v, q, v, t, params)
    for argument, x in (("q_guess", q), ("v_guess", v)):
        if not np.isfinite(x).all():
            raise ValueError(
                f"Argument `{argument}` must have a nearest point on the constraints, but none was "
                f"found at t = {float(t):g}; give a closer guess, or check that the constraints "
                "have derivatives there."
            )
    for name, level, size in KnownState(system, q, v, t, params).violations()[:1]:
        held = ", ".join(fixed if level == "position" else velocity_names)
        raise ValueError(
            f"Constraint {name!r} cannot be met at t = {float(t):g}: the nearest state found "
            f"leaves its {level} residual at {size:.3g}"
            + (f" with {held} held fixed; release one of them or" if held else ";")
            + " give a closer guess, or check that the constraints agree."
        )
    return q, v


def _assemble_known(
    system: System, free_q: tuple[int, ...], free_v: tuple[int, ...], q: Array, v: Array, t: Array,
    params: Params,
) -> tuple[Array, Array]:  # fmt: skip
    # `metric_mass` on the host, by the function that has told whether M is singular.
    singular: Any = with_mass_rank(system, q, v, t, params).singular_mass
    known = KnownState(system, q, v, t, params)
    M, A = known.mass_and_rows
    if singular:
        rows = A if singular is True else A[list(singular)]
        squared = (rows * rows).sum(1)
        weights = np.trace(M) / len(M) / np.where(squared > 0, squared, np.inf)  # `row_weights`
        M = M + (rows * weights[:, None]).T @ rows
    extents = known.extents
    x: Any = q
    new_v: Any = v
    M_q, sizes = M, extents
    if system.plain is not system:
        M_q, sizes = np.asarray(_coordinate_metric(system, M, q, v, t, params)), np.ones_like(v)
    if free_q and any(isinstance(c, Holonomic) for c in system.plain.constraints):
        rates = np.zeros_like(q)  # on which positions do not depend
        x = SearchOfKnown(system.plain, (q, rates, t, params), free_q, extents, M_q).nearest()
    if free_v and any(isinstance(c, Holonomic | Nonholonomic) for c in system.constraints):
        state = x, v, t, params
        search = SearchOfKnown(system, state, free_v, sizes, M, is_of_velocities=True)
        new_v = search.nearest(is_affine=_is_affine(system))
    return jnp.asarray(x), jnp.asarray(new_v)


def _is_affine(system: System) -> bool:
    """Whether the velocity level is affine in v, as dphi/dt is; psi may be anything."""
    return not any(isinstance(c, Nonholonomic) for c in system.constraints)


@jit_of("system", "free_q", "free_v", is_frame=True)
def _assemble(
    system: System, free_q: tuple[int, ...], free_v: tuple[int, ...], q: Array, v: Array, t: Array,
    params: Params,
) -> tuple[Array, Array]:  # fmt: skip
    state = q, v, t, params
    return native_call(
        partial(_nearest, system, free_q, free_v), *state, differ=(True, True, False, False)
    )


def _nearest(
    system: System, free_q: tuple[int, ...], free_v: tuple[int, ...], q: Array, v: Array, t: Array,
    params: Params,
) -> tuple[Array, Array]:  # fmt: skip
    ranked = with_mass_rank(system, q, v, t, params)
    M = metric_mass(ranked, q, v, t, params)
    M_q = coordinate_metric(ranked, M, q, v, t, params)
    q = _with_free(nearest, system.plain.dynamics.position_level, q, free_q, M_q, (t, params))
    v = _with_free(
        nearest_affine if _is_affine(system) else nearest,
        lambda v, q, t, p: system.dynamics.velocity_level(q, v, t, p), v, free_v, M, (q, t, params),
    )  # fmt: skip
    return q, v


def _with_free(
    find: Callable[..., Array], level: Level, x: Array, free: tuple[int, ...], M: Array,
    context: tuple[Any, ...],
) -> Array:  # fmt: skip
    """The nearest point under changes of the free components only."""
    if not free or jax.eval_shape(level, x, *context).shape == (0,):
        return x
    if len(free) == x.size:
        return find(level, x, M, context)

    # Slices: the derivative of an update by indices compares indices, and hides what is zero.
    def full_value(y: Array, x: Array) -> Array:
        index = {i: k for k, i in enumerate(free)}
        return jnp.stack([y[index[i]] if i in index else x[i] for i in range(x.size)])

    def inner(y: Array, x: Array, *context: Any) -> Array:
        return level(full_value(y, x), *context)

    inner_mass = jnp.stack([_taken(M[i], free) for i in free])
    return full_value(find(inner, _taken(x, free), inner_mass, (x, *context)), x)


def _taken(x: Array, indices: Sequence[int]) -> Array:
    return jnp.stack([x[i] for i in indices])


def begin(
    system: System, start: Start | None, q0: Array, v0: Array, t: Array, params: Params
) -> tuple[Array, Array]:
    """The initial state for recorded variables, by the function `start` or by projection."""
    if start is not None:
        with naming_missing("`start`", params):
            q, v = start(q0, v0, params)
        return jnp.asarray(q), jnp.asarray(v)
    return onto(system, q0, v0, t, params)


def onto(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
    """Move a state onto the constraints by Newton steps."""
    if not system.constraints and not system.invariants:
        return q, v
    ranked = with_mass_rank(system, q, v, t, params)

    def correct(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return Projection(iterations=1).after_step(ranked, *state, t, params)[:2]

    # A loop, so that the correction is compiled once.
    return jax.lax.fori_loop(0, CORRECTIONS, correct, (q, v))
