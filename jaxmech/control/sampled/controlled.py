"""`controlled`: a system with controllers that have a sample time."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from jaxmech.control.sampled.controller import Controller
from jaxmech.control.sampled.controller_set import ControllerSet
from jaxmech.control.sampled.reading import HeldRates, Reading
from jaxmech.system import (
    Acceleration,
    DryFriction,
    Nonholonomic,
    Subject,
    System,
    system_of,
)
from jaxmech.utils.checks import require_kind

# Arguments that are vectors, the first ones, of the functions of a system; else q and v.
_VECTORS = {"`loads`": 3, "`kinematics`": 1}


def controlled(
    system: Subject,
    controllers: Controller | Iterable[Controller],
    *,
    longest_run: float | None = None,
) -> System:
    """A system whose forces read the outputs of controllers, for `simulate` and everything else.

    The functions of the system, other than those of q and t alone (`Holonomic` constraints and
    `kinematics`), find the held output of each controller among their parameters, by its name.

    What controllers keep are states of first order at the end of v. A start is given without them,
    or with them to continue a run: q and v of the last time of a `Solution`. At each saved time,
    `solution["torque"]`, `["torque.memory.integral"]` and `["torque.sample"]`, the number of the
    last sample, are those right after the controllers have computed; at the last time they have not
    yet. The functions of controllers and of events are given q and v without these states.

    Args:
        system: the system; or a model or a mechanism, whose system it is.
        controllers: one `Controller`, or several in the order in which they compute.
        longest_run: a time that no run exceeds [s], only for runs whose times are traced.

    Returns:
        A `System` with further states of first order.

    Raises:
        TypeError: if `controllers` holds anything else.
        ValueError: if a name is used twice, or the system has controllers already.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> def push(measured, memory, t, params):
        ...     return -400.0 * measured[0] - 2.5 * measured[1], memory
        >>> cart = jm.System(
        ...     lambda q, v, t, p: (v @ v) / 2,
        ...     force=lambda q, v, t, p: p["push"],
        ...     coordinates=("x",),
        ... )
        >>> loop = controlled(cart, jm.Controller(push, 0.01, output=[0.0]))
        >>> sol = jm.simulate(loop, [0.1], [0.0], jnp.linspace(0.0, 1.0, 11))
        >>> print(sol["x"][-1].round(6))
        0.028569
    """
    bare = system_of(system)
    if bare.sampling is not None:
        raise ValueError(
            "Argument `system` must have no controllers yet, but has "
            f"{bare.sampling}; give all of them in one call."
        )
    several = [controllers] if isinstance(controllers, Controller) else list(controllers)
    for controller in several:
        require_kind("controllers", controller, Controller, "Controller(update, period=0.01)")
    if not several:
        return bare
    _require_free_names(bare, [controller.name for controller in several])
    together = ControllerSet(tuple(several), bare.n, bare.n_velocities, longest_run)
    vectors = dict(_VECTORS)
    for constraint in (*bare.constraints, *bare.invariants, *bare.unilateral):
        kinds = {Nonholonomic: 2, DryFriction: 2, Acceleration: 3}
        part = "friction" if isinstance(constraint, DryFriction) else "constraint"
        vectors[f"{part} {constraint.name!r}"] = kinds.get(type(constraint), 1)

    def reading(fn: Callable[..., Any], role: str) -> Reading:
        return Reading(fn, together, vectors.get(role, 2))

    named = bare.with_functions(reading)
    old = len(bare.states)
    return replace(
        named,
        coordinates=bare.coordinates[: bare.n - old],
        states=(*bare.states, *together.names),
        rates=HeldRates(named.rates, old, together),
        sampling=together,
    )


def _require_free_names(system: System, names: list[str]) -> None:
    taken = {*system.value_names, *system.velocity_names}
    for name in names:
        if name in taken or names.count(name) > 1:
            raise ValueError(
                f"Argument `controllers` must have names of their own, but {name!r} is also that "
                "of another one, or of a coordinate or a state; set `name`."
            )
