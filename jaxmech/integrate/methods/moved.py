"""The start of a step, and its end before projection, of all methods."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int

from jaxmech.system import Params


class StepStart(eqx.Module):
    """The state at which a step starts, and its length."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    t: Float[Array, ""]  # [s]
    h: Float[Array, ""]  # [s]
    params: Params


class Moved(eqx.Module):
    """The end of a step before projection, and how it went."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    good: Bool[Array, ""]  # whether all checks passed
    status: Int[Array, ""]  # the first failure, a `Status`; read only where they did not
    independent: Bool[Array, ""]  # whether all constraint rows were
    rank: Int[Array, ""]  # the smallest
    rows: int = eqx.field(static=True)  # number of constraint rows
