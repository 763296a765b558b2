"""Forces that carry a part of the weight of bodies (`gravcomp`), passive or by actuators."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jaxmech.interop.mujoco.bodies import Offset, Placed, tidy
from jaxmech.interop.mujoco.flags import is_on
from jaxmech.parts.body import AbstractBody
from jaxmech.parts.forces.elements import Support
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.values import Reader


@dataclass(frozen=True)
class Compensation:
    """The generalized force (n,) of all supports, as a function of (q, t, params)."""

    kinematics: AbstractKinematics
    supports: tuple[Support, ...]

    def __call__(self, q: Array, t: Array, params: Any) -> Array:
        """The negative gradient of the potentials."""

        def energy(q: Array) -> Any:
            return sum(
                support.energy(
                    self.kinematics.frames(support.bodies, q, t, params),
                    Reader(support.part, t, params),
                )
                for support in self.supports
            )

        return -jax.grad(energy)(q)


def supports(
    model: Any, places: list[Placed], bodies: dict[int, AbstractBody], names: tuple[str, ...]
) -> tuple[Support, ...]:
    """The forces that carry a part of the weight of the moving bodies."""
    g = np.asarray(model.opt.gravity)
    is_passive = is_on("spring", model) or is_on("damper", model)  # else there are none in MuJoCo
    if not g.any() or not is_on("gravity", model) or not is_passive:
        return ()
    forces: list[Support] = []
    for index, moving in bodies.items():
        members = [k for k, place in enumerate(places) if place.index == index and k]
        factors = {float(model.body_gravcomp[k]) for k in members if model.body_mass[k]}
        if len(factors) == 1:
            forces += _of_body(names[index], moving, factors.pop() * g)
            continue
        _require_constant(names[index], moving)
        for k in members:
            factor = float(model.body_gravcomp[k])
            center = places[k].pose.then(Offset(model.body_ipos[k], model.body_iquat[k])).position
            part, mass = f"support of {names[k]!r}", float(model.body_mass[k])
            if factor:
                carried = tuple(tidy(factor * g))
                forces.append(Support(part, (moving,), mass, tuple(tidy(center)), carried))
    return tuple(forces)


def _of_body(name: str, body: AbstractBody, carried: Any) -> list[Support]:
    """The support of a whole body, whose mass and centre may be parameters."""
    if not carried.any():
        return []
    assert isinstance(body, AbstractRigidBody)
    own = body.properties
    part = f"support of {name!r}"
    return [Support(part, (body,), own.mass, own.center, tuple(tidy(carried)))]


def _require_constant(name: str, body: AbstractBody) -> None:
    """Raise for a mass that is a parameter, of a body with parts that are carried differently."""
    assert isinstance(body, AbstractRigidBody)
    if isinstance(body.properties.mass, str) or isinstance(body.properties.center, str):
        raise ValueError(
            f"The body {name!r}, which consists of bodies with different `gravcomp`, cannot have a "
            'mass or a centre that is a parameter; leave "mass" and "center" out of `params`, or '
            "give its bodies the same `gravcomp`."
        )
