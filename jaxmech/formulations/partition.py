"""`Partition`: which coordinates are integrated in a step, and how the others follow from them."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.consistency import near, near_rates
from jaxmech.linalg import Pivots, matvec
from jaxmech.system import Params, System


class Partition(eqx.Module):
    """The dependent coordinates and velocities of one step; the others are integrated."""

    positions: Pivots  # of the position constraints; the coordinates of their columns are dependent
    velocities: Pivots  # of the velocity constraints
    usable: Bool[Array, ""]  # whether all of these pivots are well above zero
    extents: Float[Array, " n"]  # of the coordinates
    iterations: int = eqx.field(static=True)  # of Newton's method for the positions
    velocity_iterations: int = eqx.field(static=True)

    def complete(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[Array, Array, Bool[Array, ""]]:
        """The state with dependent q and v computed from the independent ones."""

        def positions(q: Array) -> Array:
            return system.position_level(q, t, params)

        def velocities(v: Array) -> Array:
            return system.velocity_level(q, v, t, params)

        # The residual may be that of sqrt(eps) of the extents, before a last correction.
        size = {"extents": self.extents, "share": float(jnp.finfo(q.dtype).eps) ** 0.5}
        holds = partial(near, **size)
        q, q_found = self._root(positions, q, self.positions, self.iterations, holds)
        holds = partial(near_rates, q=q, **size)
        v, v_found = self._root(velocities, v, self.velocities, self.velocity_iterations, holds)
        return q, v, q_found & v_found

    def _root(
        self, level: Callable[[Array], Array], x: Array, chosen: Pivots, iterations: int,
        holds: Callable[[Array, Array, Array], Array],
    ) -> tuple[Array, Array]:  # fmt: skip
        """Solve level(x) = 0 for the dependent components of x; also whether that succeeded."""
        if chosen.sizes.size == 0:
            return x, jnp.asarray(True)

        def newton(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            A = jax.jacfwd(level)(state[0])
            # In a step without a chart nothing moves, instead of moving by an unusable inverse.
            B = jnp.where(self.usable, chosen.inverse(A), 0.0)
            return state[0] - matvec(B, level(state[0])), A, B

        zero_slopes = jnp.zeros((chosen.rows.shape[1], x.size), x.dtype)
        new, A, B = jax.lax.fori_loop(0, iterations, newton, (x, zero_slopes, zero_slopes.T))
        # The last correction has the same inverse. Rows without a pivot may contradict the others.
        residual = level(new)
        nearly = holds(residual, A, new)
        return jnp.where(nearly, new - matvec(B, residual), x), nearly | ~self.usable
