"""`sensitivities`: a trajectory with its derivatives by a few numbers, in forward mode."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxmech.compiler import batched_closure, lanes
from jaxmech.integrate import AbstractMethod, AbstractSteps, ForwardMode, Scheme, resolved
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.run.simulate import simulate
from jaxmech.run.solution import Solution
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.system import Params, Subject, with_params
from jaxmech.utils.checks import with_standard_promotion

TOGETHER = 5  # largest number of derivatives per trajectory; more of them compile slowly


class Sensitivities(NamedTuple):
    """A trajectory and its derivatives, each in the structure of theta.

    The result of `sensitivities`.

    Attributes:
        solution: the trajectory.
        q: dq/dtheta at the save times, leaves (T, n, *shape of the leaf); NaN after a failure.
        v: dv/dtheta at the save times, with the same shapes.
    """

    solution: Solution
    q: Any
    v: Any


@with_standard_promotion
def sensitivities(
    system: Subject,
    start: Callable[[Any], tuple[Any, Any, Params]],
    theta: Any,
    ts: Any,
    *,
    method: AbstractMethod | None = None,
    steps: AbstractSteps | None = None,
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> Sensitivities:
    """A trajectory and its derivatives by a few numbers: initial values, parameters, or both.

    Forward mode carries derivatives along with the motion: for few numbers and many outputs
    (Gauss-Newton, error propagation) it is faster than `jax.grad`, whose cost does not depend on p
    but is paid for each output. Pure: `jax.vmap` runs a batch.

    Args:
        system: the system, with n coordinates.
        start: start(theta) gives q0 (n,), v0 (n,) and the parameters.
        theta: a pytree of floating-point numbers and arrays, p numbers in all.
        ts: save times [s], shape (T,).
        method: as for `simulate`.
        steps: as for `simulate`.
        projection: as for `simulate`.
        formulation: as for `simulate`.

    Returns:
        The `Sensitivities`; a failed trajectory has its status in the solution.

    Raises:
        ValueError: if theta contains no numbers, or an argument of `simulate` is invalid.
        TypeError: if theta holds something other than floating-point numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> from jaxmech import models
        >>> model = models.pendulum()
        >>> def start(theta):
        ...     params = {**model.params, "l": theta["l"]}
        ...     return *model.initial({"theta": theta["angle"]}, params), params
        >>> found = sensitivities(
        ...     model.system, start, {"l": 1.0, "angle": 0.3}, jnp.linspace(0.0, 1.0, 101)
        ... )
        >>> found.q["angle"].shape
        (101, 2)
        >>> print(found.q["angle"][0])  # l (cos angle, sin angle)
        [0.9553365  0.29552021]
    """
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(theta)]
    if not leaves or not sum(leaf.size for leaf in leaves):
        raise ValueError("Argument `theta` must hold at least one number to differentiate by.")
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"Argument `theta` must hold floating-point numbers, but has one of type "
                f"{leaf.dtype}; write 2.0 instead of 2."
            )
    flat, unravel = ravel_pytree(theta)
    system, _ = with_params(system, None)
    q0, v0, params = start(theta)
    scheme = Scheme.of(system, method, steps, projection, formulation)
    ways = resolved(scheme, q0, v0, ts, params).policies
    ways |= {"derivative": ForwardMode(), "throw": False}

    def states(flat: Array) -> tuple[tuple[Array, Array], Solution]:
        q0, v0, params = start(unravel(flat))
        solution = simulate(system, q0, v0, ts, params, **ways)
        return (solution.q, solution.v), solution

    slopes, solution = slopes_by_groups(states, flat)
    failed = jnp.isnan(solution.q[:, :1, None])
    shaped = jax.vmap(jax.vmap(unravel))
    moved = (jnp.where(failed, jnp.nan, jnp.moveaxis(x, 0, -1)) for x in slopes)
    return Sensitivities(solution, *map(shaped, moved))


def slopes_by_groups(
    fn: Callable[[Array], tuple[Any, Any]], x: Float[Array, " p"], together: int | None = None
) -> tuple[Any, Any]:
    """The derivatives of the first result of fn by x on a first axis (p, ...), and the second.

    With at most `together` of them per trajectory, `TOGETHER` by default.
    """

    def along(x: Array, directions: Array) -> tuple[Any, Any]:
        def derivative(direction: Array) -> tuple[Any, Any]:
            _, slopes, auxiliary = jax.jvp(fn, (x,), (direction,), has_aux=True)
            return slopes, auxiliary

        if len(directions) == 1:  # one batch less to trace
            slopes, auxiliary = derivative(directions[0])
            return jax.tree.map(lambda s: s[None], slopes), auxiliary
        return jax.vmap(derivative, out_axes=(0, None))(directions)

    # Unit directions in equal groups that go with one trajectory each.
    groups = -(-x.size // (together or TOGETHER))
    width = -(-x.size // groups)
    directions = jnp.eye(groups * width, x.size, dtype=x.dtype).reshape(groups, width, x.size)
    # a batch of groups fills the lanes that a few trajectories would leave empty
    group = batched_closure(along, x, directions[0])
    slopes, auxiliaries = jax.vmap(partial(group, x))(directions)
    slopes = jax.tree.map(lambda s: s.reshape(groups * width, *s.shape[2:])[: x.size], slopes)
    return slopes, jax.tree.map(lambda o: o[0], auxiliaries)


def quickest_together(trajectories: int, count: int, dtype: Any) -> int:
    """How many of `count` derivatives each trajectory of a small batch should carry.

    One trajectory with derivatives takes as long as all that fit into the lanes beside it, and a
    derivative takes 1.6 times as long as the motion. Of equals the fewest are chosen, for the
    shortest program.
    """

    def cost(together: int) -> float:
        passes = -(-trajectories * -(-count // together) // lanes(dtype))
        return passes * (1 / 1.6 + together)

    return min(range(1, TOGETHER + 1), key=cost)
