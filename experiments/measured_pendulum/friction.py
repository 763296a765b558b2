r"""Friction laws of hinges and air, dissipative for positive coefficients.

A law is a sum of terms. Each term is a torque against a rate w that has the sign of w, so that it
only dissipates energy. In a hinge w is the rate of one arm relative to the other; in the air it is
the absolute rate of an arm.

    term       acts in   torque                                            parameters
    viscous    hinges    k w                                               k [N m s]
    coulomb    hinges    c tanh(w / w0)                                    c [N m]
    lifting    hinges    c exp(-(w / ws)^2) tanh(w / w0)                   c [N m], ws [rad/s]
    stribeck   hinges    c (r + (1 - r) exp(-(w / ws)^2)) tanh(w / w0)     c [N m], ws [rad/s], r
    air        the air   b w                                               b [N m s]
    drag       the air   d |w| w                                           d [N m s^2]

The sign of w is smoothed below w0 = 0.1 rad/s, a range that a swing passes in a few milliseconds.
Stribeck friction decreases with speed from c to r c; where a film of grease separates the surfaces
(`lifting`), to zero. Laws that cannot decrease would fit such a hinge with a negative viscous
coefficient, so all coefficients are bounded to be positive, and 0 < r < 1. In the first hinge `air`
is the same as `viscous`, so it applies to the other arms only.

A law is named by its terms, such as "coulomb+drag". Parameters end in the number of their arm (c1,
c2), or in nothing for the single pendulum.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

Params = Mapping[str, Any]
Bounds = tuple[float, float | None]

SLOW = 0.1  # w0 [rad/s]


@dataclass(frozen=True)
class Term:
    """A friction torque with its parameters."""

    torque: Callable[[Array, Params, str], Array]  # (w, p, arm) -> [N m]; arm ends the names in p
    parameters: tuple[tuple[str, float, Bounds], ...]  # names, initial guesses and bounds
    in_air: bool = False  # whether w is the absolute rate


def viscous(w: Array, p: Params, arm: str) -> Array:
    return p["k" + arm] * w


def coulomb(w: Array, p: Params, arm: str) -> Array:
    return p["c" + arm] * jnp.tanh(w / SLOW)


def lifting(w: Array, p: Params, arm: str) -> Array:
    return coulomb(w, p, arm) * jnp.exp(-((w / p["ws" + arm]) ** 2))


def stribeck(w: Array, p: Params, arm: str) -> Array:
    remains = p["r" + arm]
    return remains * coulomb(w, p, arm) + (1 - remains) * lifting(w, p, arm)


def air(w: Array, p: Params, arm: str) -> Array:
    return p["b" + arm] * w


def drag(w: Array, p: Params, arm: str) -> Array:
    return p["d" + arm] * jnp.abs(w) * w


POSITIVE = (0.0, None)
C = ("c", 4e-4, POSITIVE)
WS = ("ws", 5.0, (0.3, 20.0))
TERMS = {
    "viscous": Term(viscous, (("k", 5e-5, POSITIVE),)),
    "coulomb": Term(coulomb, (C,)),
    "lifting": Term(lifting, (C, WS)),
    "stribeck": Term(stribeck, (C, WS, ("r", 0.5, (0.0, 1.0)))),
    "air": Term(air, (("b", 2e-5, POSITIVE),), in_air=True),
    "drag": Term(drag, (("d", 1e-5, POSITIVE),), in_air=True),
}


@dataclass(frozen=True)
class Law:
    """A friction law of a pendulum; `name` is its terms with + between them."""

    name: str

    def __post_init__(self) -> None:
        unknown = [term for term in self.name.split("+") if term not in TERMS]
        if unknown:
            known = ", ".join(TERMS)
            raise ValueError(f"A friction law is made of {known} with +, but has {unknown[0]!r}.")

    def hinge(self, w: Array, p: Params, arm: str) -> Array:
        """The torque of the hinge before an arm against the relative rate w."""
        return sum((term.torque(w, p, arm) for term in self._terms(arm, False)), jnp.zeros_like(w))

    def air(self, w: Array, p: Params, arm: str) -> Array:
        """The torque of the air on an arm against its absolute rate w."""
        return sum((term.torque(w, p, arm) for term in self._terms(arm, True)), jnp.zeros_like(w))

    def start(self, arms: tuple[str, ...]) -> dict[str, float]:
        """The initial guess of all parameters by name."""
        return {name + arm: value for arm, name, value, _ in self._parameters(arms)}

    def bounds(self, arms: tuple[str, ...]) -> dict[str, Bounds]:
        """The bounds of all parameters by name."""
        return {name + arm: bounds for arm, name, _, bounds in self._parameters(arms)}

    def _terms(self, arm: str, in_air: bool | None = None) -> list[Term]:
        names = [name for name in self.name.split("+") if name != "air" or arm not in ("", "1")]
        return [TERMS[name] for name in names if in_air in (None, TERMS[name].in_air)]

    def _parameters(self, arms: tuple[str, ...]) -> list[tuple[str, str, float, Bounds]]:
        return [(arm, *one) for arm in arms for term in self._terms(arm) for one in term.parameters]
