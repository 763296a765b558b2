"""Checks that bodies, joints and forces are parts of one mechanism."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import jax.numpy as jnp

from jaxmech.parts.body import AbstractBody, Ground
from jaxmech.parts.forces.elements import AbstractForce, AbstractTerm, Gravity
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.values import Reader
from jaxmech.system import AbstractConstraint, DryFriction, Unilateral
from jaxmech.utils.checks import require_kind
from jaxmech.utils.text import capital

AnyJoint = Joint | AbstractConstraint | Unilateral | DryFriction
AnyForce = AbstractForce | AbstractTerm | Gravity | Callable[..., Any]


def require_consistent(
    bodies: Sequence[AbstractBody], joints: Sequence[AnyJoint], forces: Sequence[AnyForce]
) -> None:
    """Raise unless all arguments are parts of one mechanism."""
    _require_kinds(bodies, joints, forces)
    _require_distinct("bodies", (body.name for body in bodies))
    _require_distinct("joints", (joint.name for joint in joints))
    _require_distinct("forces", (force.part for force in forces if hasattr(force, "part")))
    _require_one_dimension(bodies, [f for f in forces if isinstance(f, Gravity)])
    for part in (*joints, *forces):
        if isinstance(part, Joint | AbstractForce):
            _require_known(part.part, part.bodies, bodies)


def require_possible(
    bodies: Iterable[AbstractBody], joints: Iterable[Any], params: Mapping[str, Any]
) -> None:
    """Raise for masses, sizes and curves that nothing can have, with these parameters."""
    t, values = jnp.zeros(()), dict(params)
    for body in bodies:
        body.require(Reader(f"body {body.name!r}", t, values))
    for joint in joints:
        if isinstance(joint, Joint):
            joint.require(Reader(joint.part, t, values))


def _require_kinds(bodies: Sequence[Any], joints: Sequence[Any], forces: Sequence[Any]) -> None:
    any_force: Any = AbstractForce | AbstractTerm | Gravity | Callable
    for body in bodies:
        require_kind("bodies", body, AbstractBody, "planar_body(...)")
        if isinstance(body, Ground):
            raise TypeError(
                "Argument `bodies` must not hold `ground`, which is always there; leave it out."
            )
    for joint in joints:
        require_kind("joints", joint, AnyJoint, "revolute(...) or Holonomic(...)")
    for force in forces:
        if isinstance(force, AnyJoint):
            raise TypeError(
                f"Argument `forces` must not hold {force.name!r}, which keeps bodies from moving; "
                "put it into `joints`."
            )
        require_kind("forces", force, any_force, "gravity(...) or a function")


def _require_distinct(argument: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if not isinstance(name, str) or (not name and argument != "joints"):
            raise ValueError(f"Argument `{argument}` must have non-empty names, but has {name!r}.")
        if name and times > 1:
            raise ValueError(
                f"Argument `{argument}` must have distinct names, but {name!r} is given twice; "
                "rename one."
            )
        if argument == "bodies" and name == "ground":
            raise ValueError(
                "Argument `bodies` must not hold a body named 'ground', a name reserved for the "
                "ground; rename it."
            )


def _require_one_dimension(bodies: Sequence[AbstractBody], weights: Sequence[Gravity]) -> None:
    sizes = {body.dimension for body in bodies}
    if len(sizes) > 1:
        kinds = {2: "planar", 3: "spatial"}
        description = ", ".join(f"{body.name!r} is {kinds[body.dimension]}" for body in bodies)
        raise ValueError(
            f"Argument `bodies` must be all planar or all spatial, but {description}; use one kind."
        )
    for weight in weights:
        if isinstance(weight.down, tuple) and {len(weight.down)} != sizes:
            raise ValueError(
                f"Gravity must have a direction `down` of {sizes.pop()} components, as the bodies "
                f"have, but has {len(weight.down)}; write one for each direction."
            )


def _require_known(
    part: str, partners: Sequence[AbstractBody], bodies: Sequence[AbstractBody]
) -> None:
    bodies_by_name = {body.name: body for body in bodies}
    for body in partners:
        if not isinstance(body, Ground) and bodies_by_name.get(body.name) != body:
            namesake = body.name in bodies_by_name
            remedy = "use the same object" if namesake else "add it there"
            raise ValueError(
                f"{capital(part)} must be between bodies of the mechanism, but its body "
                f"{body.name!r} is not {'the one of that name in' if namesake else 'in'} `bodies` "
                f"({', '.join(bodies_by_name)}); {remedy}."
            )


def reads_parameters(part: Any) -> bool:
    """Whether a part has a value that is the name of a parameter or a function."""
    if is_dataclass(part):
        name_fields = ("name", "part", "kind", "coordinate")  # names of other things
        return any(
            reads_parameters(getattr(part, field.name))
            for field in fields(part)
            if field.name not in name_fields
        )
    if isinstance(part, tuple):
        return any(map(reads_parameters, part))
    return isinstance(part, str) or callable(part)
