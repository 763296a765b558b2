"""The rows of A and b of all joints, group by group, and the residuals of their equations."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.parts.values import Reader
from jaxmech.sparse.groups import Group
from jaxmech.sparse.structure import BodyGraph, JointEquations

Blocks = tuple[Array, ...]  # coordinates or velocities of the bodies of a joint


def level(e: JointEquations, params: Any, q: Blocks, v: Blocks, t: Array) -> Array:
    """The residuals of the equations on positions, or of those on velocities, (b,)."""
    read, bodies = Reader(e.joint.part, t, params), e.joint.bodies
    if e.of_velocities:
        motions = (body.moving(x, y) for body, x, y in zip(bodies, q, v, strict=True))
        return e.joint.velocity_level(tuple(motions), read)
    return e.joint.position_level(tuple(b.frame(x) for b, x in zip(bodies, q, strict=True)), read)


def _levels(group: Group, q: Array, v: Array, t: Array, params: Any) -> Float[Array, "k b"]:
    return group.of_each(
        lambda e, params, q, v: level(e, params, q, v, t), params, group.blocks(q), group.blocks(v)
    )


def _rates(group: Group, q: Array, v: Array, t: Array, params: Any) -> Float[Array, "k b"]:
    """The residuals of velocities: dphi/dt along the motion, or psi."""
    if group.template.of_velocities:
        return _levels(group, q, v, t, params)
    along = v, jnp.ones_like(t)
    return jax.jvp(lambda q, t: _levels(group, q, v, t, params), (q, t), along)[1]


def _padded(parts: list[Array]) -> Float[Array, "b m"]:
    """Rows of all constraints, with zeros where one has fewer than the others."""
    if not parts:
        return jnp.zeros((0, 0))
    height = max(part.shape[1] for part in parts)
    return jnp.concatenate(
        [jnp.pad(part.T, ((0, height - part.shape[1]), (0, 0))) for part in parts], axis=1
    )


def position_level(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any
) -> Float[Array, "b m"]:
    """The residuals phi of all joints; zero for equations on velocities."""
    parts = [_levels(group, q, v, t, params) for group in structure.constraints]
    kinds = (group.template.of_velocities for group in structure.constraints)
    parts = [
        jnp.zeros_like(part) if of_velocities else part
        for part, of_velocities in zip(parts, kinds, strict=True)
    ]
    return _padded(parts)


def velocity_level(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any
) -> Float[Array, "b m"]:
    """The residuals dphi/dt and psi of all joints."""
    return _padded([_rates(g, q, v, t, params) for g in structure.constraints])


def right_sides(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any
) -> Float[Array, "b m"]:
    """b of A qdd = b, the negative time derivatives of the residuals of velocities."""
    parts = []
    for group in structure.constraints:
        along = v, jnp.ones_like(t)

        def rates(q: Array, t: Array, group: Group = group) -> Array:
            return _rates(group, q, v, t, params)

        parts.append(-jax.jvp(rates, (q, t), along)[1])
    return _padded(parts)


def jacobian(e: JointEquations, params: Any, q: Blocks, v: Blocks, t: Array) -> tuple[Array, ...]:
    """A of one joint, (b, d) for each of its bodies."""
    if e.of_velocities:
        return jax.jacrev(lambda v: level(e, params, q, v, t))(v)
    return jax.jacrev(lambda q: level(e, params, q, v, t))(q)


def jacobians(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any
) -> list[tuple[Array, ...]]:
    """A of each group, in the coordinates of each of its bodies."""

    def of_one(e: JointEquations, params: Any, q: Blocks, v: Blocks) -> tuple[Array, ...]:
        return jacobian(e, params, q, v, t)

    return [
        group.of_each(of_one, params, group.blocks(q), group.blocks(v))
        for group in structure.constraints
    ]


def matvec(
    structure: BodyGraph, A: list[tuple[Array, ...]], x: Float[Array, " n"]
) -> Float[Array, "b m"]:
    """A x, from A by groups."""
    parts = []
    for group, jacobian in zip(structure.constraints, A, strict=True):
        total = jnp.zeros(jacobian[0].shape[:2], x.dtype)
        for a, y in zip(jacobian, group.blocks(x), strict=True):
            total = total + (a * y[:, None]).sum(2)
        parts.append(total)
    return _padded(parts)


def most_rows(structure: BodyGraph, q: Array, v: Array, t: Array, params: Any) -> int:
    """The largest number of equations of a constraint."""
    return jax.eval_shape(partial(position_level, structure), q, v, t, params).shape[0]
