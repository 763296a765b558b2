"""`SparseElimination`: the law of motion of large mechanisms, as a policy of `simulate`."""

from dataclasses import dataclass
from typing import Any, NoReturn

from jaxtyping import Array

from jaxmech.equations import EquationsOfMotion
from jaxmech.formulations import AbstractFormulation, Law
from jaxmech.system import Params, System


@dataclass(frozen=True)
class SparseElimination(AbstractFormulation):
    """The Udwadia-Kalaba equation by block elimination, for one mechanism of many bodies.

    The system is that of a `parts.Mechanism` with `coordinates="bodies"`. Bodies and joints that
    differ only in numbers are evaluated together, and what couples them is eliminated block by
    block, many independent blocks at a time. So memory and the time of a step are proportional to
    the number of bodies, and the time to compile hardly grows with it. The accelerations are those
    of `UdwadiaKalaba()`.

    It is for `simulate`, with `RK4` and other explicit Runge-Kutta methods with fixed steps.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> from jaxmech import parts as jp
        >>> links = [jp.planar_body(f"link{k}", mass=1.0, inertia=0.1) for k in range(3)]
        >>> left = [jp.ground, *links]
        >>> hinges = [
        ...     jp.revolute(f"hinge{k}", left[k], (0.5 if k else 0, 0), links[k], (-0.5, 0))
        ...     for k in range(3)
        ... ]
        >>> chain = jp.Mechanism(links, hinges, [jp.gravity()], coordinates="bodies")
        >>> q, v = chain.guess({f"link{k}": jp.Start((k + 0.5, 0.0)) for k in range(3)})
        >>> law = jm.laws.SparseElimination()
        >>> sol = jm.simulate(chain.system, q, v, jnp.linspace(0, 0.5, 3), formulation=law)
        >>> print(sol.rank, sol.energy_drift < 1e-3, sol.position_residual.max() < 1e-12)
        6 True True
    """

    def equations(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> EquationsOfMotion:
        """Raise an error, since no matrices of all coordinates are formed."""
        _refuse()

    def solve(self, eom: EquationsOfMotion, *, independent: Any = None) -> Law:
        """Raise an error, since no matrices of all coordinates are formed."""
        _refuse()


def _refuse() -> NoReturn:
    raise ValueError(
        "Argument `formulation` must not be SparseElimination() here; it is for `simulate` with "
        "fixed steps and without events. Use UdwadiaKalaba()."
    )
