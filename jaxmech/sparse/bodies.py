"""Masses, forces and free directions of all bodies, group by group.

A body moves along free directions T (d, r): accelerations are T w + c with w (r,). In space the
quaternion e has unit length, so that T leaves out the direction of e, and

    c = -e (e' . e') / (e . e),    M' = T^T M T,    Q' = T^T Q,

since M e = 0. Everywhere else T is the identity and c is zero.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.equations import generalized_force, mass_matrix
from jaxmech.parts.body import AbstractBody
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import quaternion_rate
from jaxmech.sparse.factor import applied, inverse, product
from jaxmech.sparse.groups import Group
from jaxmech.sparse.order import gathered
from jaxmech.sparse.structure import BodyGraph

_TURN = 3  # place of the quaternion among the coordinates of a body in space


def energy_difference(
    structure: BodyGraph, body: AbstractBody, q: Array, v: Array, t: Array, params: Any
) -> Array:
    """Kinetic energy minus weights of one body [J]."""
    read = Reader(f"body {body.name!r}", t, params)
    total = jnp.asarray(body.kinetic(q, v, read))
    for weight in structure.gravities:
        moment = body.moment(body.frame(q), read)
        total = total - weight.energy(moment, Reader("gravity", t, params))
    return total


def energy(structure: BodyGraph, q: Array, v: Array, t: Array, params: Any) -> Float[Array, ""]:
    """The energy of all bodies and potentials [J]."""
    total = jnp.zeros((), q.dtype)
    for group in structure.bodies:

        def of_body(body: AbstractBody, params: Any, q: Array, v: Array) -> Array:
            def difference(v: Array) -> Array:
                return energy_difference(structure, body, q, v, t, params)

            value, momentum = jax.value_and_grad(difference)(v)
            return v @ momentum - value

        total = total + group.of_each(of_body, params, *group.blocks(q), *group.blocks(v)).sum()
    for group in structure.potentials:
        total = total + group.of_each(_potential(t), params, group.blocks(q)).sum()
    return total


def _potential(t: Array) -> Any:
    def of_force(force: Any, params: Any, q: tuple[Array, ...]) -> Array:
        frames = tuple(body.frame(x) for body, x in zip(force.bodies, q, strict=True))
        return jnp.asarray(force.energy(frames, Reader(force.part, t, params)))

    return of_force


def applied_force(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any
) -> Float[Array, " n"]:
    """The generalized force of potentials, loads and functions."""
    total = jnp.zeros_like(q)
    for function in structure.others:
        force = jnp.asarray(function(q, v, t, params)).astype(q.dtype)
        if force.shape != total.shape:
            raise ValueError(
                f"Argument `forces` must hold functions that return shape {total.shape} (one "
                f"number per coordinate), but one returned {force.shape}."
            )
        total = total + force
    parts: list[Array] = []
    for group in structure.potentials:
        slopes = group.of_each(
            lambda force, params, q: jax.grad(
                lambda q: _potential(t)(force, params, q)
            )(q), params, group.blocks(q)
        )  # fmt: skip
        parts += [-slope.ravel() for slope in slopes]
    for group in structure.loads:

        def of_load(load: Any, params: Any, q: tuple[Array, ...], v: tuple[Array, ...]) -> Any:
            motions = tuple(b.moving(x, y) for b, x, y in zip(load.bodies, q, v, strict=True))
            loads = load.loads(motions, Reader(load.part, t, params))
            pairs = zip(load.bodies, q, loads, strict=True)
            return tuple(body.generalized(x, wrench) for body, x, wrench in pairs)

        loads = group.of_each(of_load, params, group.blocks(q), group.blocks(v))
        parts += [force.astype(q.dtype).ravel() for force in loads]
    if not parts:
        return total
    return total + gathered(jnp.concatenate(parts), structure.at_entries)


class FreeDirections(eqx.Module):
    """The free directions of the bodies of each group, T (k, d, r); None for the identity."""

    structure: BodyGraph = eqx.field(static=True)
    T: tuple[Array | None, ...]

    @staticmethod
    def at(structure: BodyGraph, q: Array) -> "FreeDirections":
        """The directions at a state."""

        def of_body(e: Array) -> Array:
            turns = jax.vmap(lambda w: quaternion_rate(e, w))(jnp.eye(3, dtype=e.dtype)).T
            zeros = np.zeros((3, 3), e.dtype)
            return jnp.block([[np.eye(3, dtype=e.dtype), zeros], [np.zeros((4, 3)), turns]])

        return FreeDirections(
            structure,
            tuple(
                jax.vmap(of_body)(g.blocks(q)[0][:, _TURN:]) if g.template.has_norm else None
                for g in structure.bodies
            ),
        )

    def narrowed(self, x: Float[Array, " n"]) -> Float[Array, "r N"]:
        """T^T x, with zeros where a body has fewer directions."""
        parts = []
        for group, T in zip(self.structure.bodies, self.T, strict=True):
            rates = group.blocks(x)[0].T
            if T is not None:
                rates = applied(jnp.moveaxis(T, 0, -1).swapaxes(0, 1), rates)
            parts.append(jnp.pad(rates, ((0, self.structure.size - rates.shape[0]), (0, 0))))
        return jnp.concatenate(parts, axis=1)[:, self.structure.order]

    def widened(self, w: Float[Array, "r N"]) -> Float[Array, " n"]:
        """T w."""
        parts = []
        for group, T in zip(self.structure.bodies, self.T, strict=True):
            rates = w[:, group.members]
            if T is None:
                rates = rates[: group.entries[0].shape[1]]
            else:
                rates = applied(jnp.moveaxis(T, 0, -1), rates)
            parts.append(rates.T.ravel())
        return jnp.concatenate(parts)[self.structure.entries]

    def matrices(self, masses: list[Array]) -> Float[Array, "r r N"]:
        """T^T M T of all bodies."""
        size, parts = self.structure.size, []
        for T, M in zip(self.T, masses, strict=True):
            if T is not None:
                M = (T[:, :, :, None] * (M @ T)[:, :, None, :]).sum(1)
            short = size - M.shape[1]
            parts.append(jnp.pad(jnp.moveaxis(M, 0, -1), ((0, short), (0, short), (0, 0))))
        return jnp.concatenate(parts, axis=2)[..., self.structure.order]


def along_norms(structure: BodyGraph, q: Array, sizes: Any) -> Float[Array, " n"]:
    """e * size / (e . e) in the quaternions, by the function `sizes` of a group, and else zero."""
    parts = []
    for group in structure.bodies:
        coordinates = group.blocks(q)[0]
        if group.template.has_norm:
            e = coordinates[:, _TURN:]
            scaled = e * (sizes(group, e) / (e * e).sum(1))[:, None]
            coordinates = jnp.concatenate([jnp.zeros_like(coordinates[:, :_TURN]), scaled], axis=1)
        else:
            coordinates = jnp.zeros_like(coordinates)
        parts.append(coordinates.ravel())
    return jnp.concatenate(parts)[structure.entries]


def quaternions(group: Group, x: Array) -> Float[Array, "k 4"]:
    """The entries of a group that belong to its quaternions."""
    return group.blocks(x)[0][:, _TURN:]


def masses_and_forces(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any
) -> tuple[list[Array], Float[Array, " n"]]:
    """M of each body, by groups, and Q of the bodies with their weights, without other forces."""
    masses, parts = [], []
    for group in structure.bodies:

        def of_body(body: AbstractBody, params: Any, q: Array, v: Array) -> tuple[Array, Array]:
            def slopes(q: Array, v: Array, t: Array) -> tuple[Array, Array]:
                def difference(q: Array, v: Array) -> Array:
                    return energy_difference(structure, body, q, v, t, params)

                return jax.grad(difference, (0, 1))(q, v)

            return mass_matrix(slopes, q, v, t), generalized_force(slopes, q, v, t)

        M, Q = group.of_each(of_body, params, *group.blocks(q), *group.blocks(v))
        masses.append(M)
        parts.append(Q.ravel())
    return masses, jnp.concatenate(parts)[structure.entries]


@jax.custom_jvp
def inverse_masses(M: Float[Array, "r r N"]) -> tuple[Float[Array, "r r N"], Bool[Array, "r N"]]:
    """The inverses of mass matrices on the rows with a mass, and which rows have one."""
    # As in `linalg.cholesky`: smaller pivots are round-off.
    least = 4 * M.shape[0] * jnp.finfo(M.dtype).eps * jnp.abs(jnp.einsum("iik->ik", M))
    return inverse(M, least)


@inverse_masses.defjvp
def _inverse_masses_jvp(primals: Any, tangents: Any) -> Any:
    G, has_mass = inverse_masses(*primals)
    dG = -product(product(G, tangents[0]), G)
    return (G, has_mass), (dG, np.zeros(has_mass.shape, jax.dtypes.float0))
