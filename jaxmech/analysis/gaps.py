"""Unilateral constraints at a state: which gaps are closed or negative, and what frictions hold."""

from dataclasses import replace

import jax.numpy as jnp

from jaxmech.analysis.findings import Finding, note, serious
from jaxmech.analysis.states import State
from jaxmech.consistency import near
from jaxmech.dry_friction import DryFriction
from jaxmech.integrate import Gaps
from jaxmech.system import System


def with_closed_gaps(system: System, state: State) -> tuple[System, list[Finding]]:
    """The system in which closed gaps are constraints and open ones are none, with findings.

    Example:
        >>> import jaxmech as jm
        >>> floor = jm.Unilateral(lambda q, t, p: q[0], name="floor")
        >>> ball = jm.System(lambda q, v, t, p: v @ v / 2 - q[0], [floor], coordinates=("y",))
        >>> zero = jnp.zeros(1)
        >>> with_closed_gaps(ball, State(zero, zero, zero[0], None))[0].constraints
        (Holonomic('floor'),)
    """
    q, _, t, params = state
    gaps = Gaps.of(system, q, t, params)
    if not gaps:
        return system, []
    closed, findings = [], []
    for gap in gaps.constraints:
        value, slope = gap.value(q, t, params), gap.jacobian(q, t, params)
        if near(value, slope, q, jnp.ones_like(q)):
            closed.append(gap)
            findings.append(
                note(
                    f"the gap of {gap.name!r} is closed; it counts as an equation here",
                    "nothing to do where bodies touch at the start",
                )
            )
        elif value[0] < 0:
            findings.append(
                serious(
                    f"the gap of {gap.name!r} is {float(value[0]):.3g}, but must not be negative",
                    "start from a state in which the bodies do not overlap",
                )
            )
    findings += [
        note(
            f"the friction {friction.name!r} is left out here",
            "nothing to do; `simulate` decides when it sticks",
        )
        for friction in system.unilateral
        if isinstance(friction, DryFriction)
    ]
    constraints = (*system.constraints, *closed)
    return replace(system, constraints=constraints, unilateral=()), findings


def rubbed_coordinates(system: System, state: State) -> tuple[str, ...]:
    """The coordinates along which a friction acts."""
    q, v, t, params = state
    speeds = system.dynamics.speeds(q, v, t, params)
    acts = jnp.zeros(system.n, bool)
    for friction in system.unilateral:
        if isinstance(friction, DryFriction):
            slope = friction.constraint.jacobian(q, speeds, t, params)
            acts |= (slope != 0).any(0)
    return tuple(c for c, is_acted in zip(system.value_names, acts, strict=False) if is_acted)
