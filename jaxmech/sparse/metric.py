"""`BlockMetric`: M and the joints at a state, factorized, and the solutions that it gives.

With the free directions T of all bodies (`bodies`), the blocks of A' = A T and of M',

    S = A' M'^-1 A'^T

has a block for each joint, and one for each two joints that meet in a body. Its rows are scaled to
a diagonal of one, so that a pivot is the share of a row that the rows before it leave. A row whose
share is below eps^(2/3) depends on them and is dropped, as in `linalg/ldl.py`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.sparse.bodies import FreeDirections, inverse_masses, masses_and_forces
from jaxmech.sparse.factor import Factor, applied, factorized, product, transposed
from jaxmech.sparse.order import gathered
from jaxmech.sparse.rows import jacobians
from jaxmech.sparse.structure import BodyGraph


class BlockMetric(eqx.Module):
    """The masses and the rows of the joints at a state, with the factors of S.

    Attributes:
        directions: the free directions of the bodies.
        G: inverses of M', (r, r, N).
        A: blocks of A' where constraints meet bodies, (b, r, I).
        scale: factors of the rows, zero for rows of zeros, (b, m).
        factor: the factorized S, with scaled rows.
        definite: whether M' was positive definite.
    """

    structure: BodyGraph = eqx.field(static=True)
    directions: FreeDirections
    G: Float[Array, "r r N"]
    A: Float[Array, "b r I"]
    scale: Float[Array, "b m"]
    factor: Factor | None
    definite: Bool[Array, ""]

    @property
    def rank(self) -> Int[Array, ""]:
        """The number of independent equations, with those of the unit quaternions."""
        count = 0 if self.factor is None else self.factor.independent.sum()
        return jnp.asarray(count + self.structure.norms, jnp.int32)

    @property
    def is_full(self) -> Bool[Array, ""]:
        """Whether all rows are independent."""
        if self.factor is None:
            return jnp.asarray(True)
        return (self.factor.independent | (self.scale == 0)).all()

    def across(self, w: Float[Array, "r N"]) -> Float[Array, "b m"]:
        """A' w."""
        meetings = self.structure.meetings
        return gathered(applied(self.A, w[:, meetings.body]), meetings.at_nodes)

    def reach(self, size: Array) -> Float[Array, "b m"]:
        """|A'| times a vector with all entries of this size."""
        return size * gathered(jnp.abs(self.A).sum(1), self.structure.meetings.at_nodes)

    def back(self, multipliers: Float[Array, "b m"]) -> Float[Array, "r N"]:
        """A'^T times multipliers."""
        meetings = self.structure.meetings
        forces = applied(transposed(self.A), multipliers[:, meetings.node])
        return gathered(forces, meetings.at_bodies)

    def multipliers(self, r: Float[Array, "b m"]) -> Float[Array, "b m"]:
        """Some multipliers with S multipliers = r."""
        factor, scale = self.factor, jax.lax.stop_gradient(self.scale)
        if factor is None:
            return r

        def forward(x: Array) -> Array:
            return self.across(applied(self.G, self.back(x)))

        def solve(_: Any, r: Array) -> Array:
            return scale * factor.solve(scale * r)

        # No derivative goes through the factors: it is another solution with them.
        return jax.lax.custom_linear_solve(forward, r, solve, symmetric=True)

    def min_norm_solve(self, r: Float[Array, "b m"]) -> Float[Array, "r N"]:
        """The smallest w in the metric with A' w = r."""
        if self.factor is None:
            return jnp.zeros_like(self.G[0])
        return applied(self.G, self.back(self.multipliers(r)))


class FactorizedState(eqx.Module):
    """The metric at a state, Q of bodies and weights, and A by groups."""

    metric: BlockMetric
    Q: Float[Array, " n"]
    A: list[tuple[Array, ...]]


def place_at(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Any,
    independent: Bool[Array, "b m"] | None = None,
) -> FactorizedState:  # fmt: skip
    """Evaluate and factorize at a state; only rows flagged in `independent` may count as such."""
    directions = FreeDirections.at(structure, q)
    masses, Q = masses_and_forces(structure, q, v, t, params)
    G, has_mass = inverse_masses(directions.matrices(masses))
    definite = (has_mass.sum(0) == jnp.asarray(_directions(structure))).all()
    A = jacobians(structure, q, v, t, params)
    blocks = meeting_blocks(structure, directions, A)
    if blocks is None:
        empty = jnp.zeros((0, structure.size, 0), q.dtype)
        scale = jnp.zeros((0, 0), q.dtype)
        return FactorizedState(
            BlockMetric(structure, directions, G, empty, scale, None, definite), Q, A
        )
    scale, factor = _factor(structure, *jax.lax.stop_gradient((G, blocks)), independent)
    return FactorizedState(
        BlockMetric(structure, directions, G, blocks, scale, factor, definite), Q, A
    )


def _directions(structure: BodyGraph) -> np.ndarray:
    """The number of free directions of each body, (N,)."""
    counts = [
        np.full(g.members.size, g.entries[0].shape[1] - g.template.has_norm)
        for g in structure.bodies
    ]
    return np.concatenate(counts)[structure.order]


def meeting_blocks(
    structure: BodyGraph, directions: FreeDirections, A: list[tuple[Array, ...]]
) -> Float[Array, "b r I"] | None:
    """The blocks of A T where constraints meet bodies; None without any."""
    height = max((jacobian[0].shape[1] for jacobian in A), default=0)
    number = np.full(structure.order.size, -1)
    place = np.full(structure.order.size, -1)
    for k, group in enumerate(structure.bodies):
        number[group.members], place[group.members] = k, np.arange(group.members.size)
    parts = []
    for group, jacobian in zip(structure.constraints, A, strict=True):
        for bodies, rows in zip(group.bodies, jacobian, strict=True):
            if not (bodies >= 0).all():
                continue
            T = directions.T[number[bodies[0]]]
            rows = jnp.moveaxis(rows, 0, -1)
            if T is not None:
                rows = product(rows, jnp.moveaxis(T[place[bodies]], 0, -1))
            short = height - rows.shape[0], structure.size - rows.shape[1]
            parts.append(jnp.pad(rows, ((0, short[0]), (0, short[1]), (0, 0))))
    return jnp.concatenate(parts, axis=-1) if parts else None


def _factor(
    structure: BodyGraph, G: Array, A: Array, independent: Bool[Array, "b m"] | None
) -> tuple[Float[Array, "b m"], Factor]:
    """The scale of the rows and the factors of S."""
    meetings = structure.meetings
    GA = product(G[..., meetings.body], transposed(A))
    D = gathered(product(A, GA), meetings.at_nodes)
    E = gathered(product(A[..., meetings.first], GA[..., meetings.second]), meetings.at_edges)
    size = D.shape[0]
    squared = jnp.stack([D[j, j] for j in range(size)])
    scale = jnp.where(squared > 0, 1 / jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
    ends = meetings.ends
    D = D * scale[:, None] * scale[None]
    E = E * scale[:, None, ends[0]] * scale[None, :, ends[1]]
    least = jnp.full(scale.shape, float(jnp.finfo(G.dtype).eps) ** (2 / 3), G.dtype)
    if independent is not None:
        least = jnp.where(independent, least, jnp.inf)
    return scale, factorized(structure.elimination, D, E, least)
