"""`friction_laws`: a mechanism with several laws of friction in its joints, to be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxmech.assemble import Start
from jaxmech.identify.identifiable import Identifiable
from jaxmech.identify.problem.least_squares import Observe
from jaxmech.parts import Joint, Mechanism, friction
from jaxmech.utils.checks import require_kind, require_positive, require_sequence

_SMOOTH = 0.02  # of the speed, at which dry friction is reached
_LAWS = {  # the numbers of each law; the others are zero
    "viscous": ("viscous",),
    "coulomb": ("coulomb",),
    "coulomb + viscous": ("coulomb", "viscous"),
    "stribeck": ("coulomb", "viscous", "static", "stribeck"),
}


def friction_laws(
    mechanism: Mechanism,
    joints: Sequence[str],
    *,
    torque: float | int,
    speed: float | int,
    free: Sequence[str] = (),
    bounds: Mapping[str, Any] | None = None,
    observe: Observe | None = None,
    start: Start | None = None,
) -> dict[str, Identifiable]:
    """Laws of friction in joints of a mechanism, as candidates for `cross_validate`.

    The candidates are "viscous", "coulomb", "coulomb + viscous" and "stribeck", which has both of
    these and a larger friction at rest. They use `parts.friction`, with parameters such as
    `elbow.viscous`, which are fitted with a lower bound of zero.

    Args:
        mechanism: the mechanism without this friction.
        joints: names of the joints.
        torque: initial guess of the friction [N m or N].
        speed: typical speed of the motion [rad/s or m/s]; dry friction is smoothed below 2 % of it.
        free: names of further parameters to be fitted.
        bounds: bounds of these parameters, as for `fit`.
        observe: the sensors, as for `fit`.
        start: the initial state, as for `fit`.

    Raises:
        ValueError: if the mechanism has no joint with one of the names, or a number is not
            positive.

    Example:
        >>> from jaxmech.parts import gravity, ground, planar_body, revolute
        >>> rod = planar_body("rod", mass=1.0, inertia=0.1)
        >>> hinge = revolute("hinge", ground, (0, 0), rod, (-0.5, 0))
        >>> swing = Mechanism([rod], [hinge], [gravity(9.81)])
        >>> laws = friction_laws(swing, ["hinge"], torque=0.1, speed=2.0)
        >>> laws["coulomb + viscous"].free
        ('hinge.coulomb', 'hinge.viscous')
    """
    require_kind("mechanism", mechanism, Mechanism, "Mechanism(...) or robot.mechanism")
    require_sequence("joints", joints)
    require_positive("torque", torque)
    require_positive("speed", speed)
    named = {joint.name: joint for joint in mechanism.joints if isinstance(joint, Joint)}
    for name in joints:
        if name not in named:
            raise ValueError(
                f"Argument `joints` must hold names of joints out of {', '.join(named)}, but has "
                f"{name!r}."
            )
    begin = {"coulomb": torque, "viscous": torque / speed, "static": 1.5 * torque}
    begin["stribeck"] = 0.2 * speed
    candidates = {}
    for law, numbers in _LAWS.items():
        added = {f"{joint}.{number}": begin[number] for joint in joints for number in numbers}
        forces = [_friction(named[joint], numbers, speed) for joint in joints]
        whole = replace(
            mechanism,
            forces=(*mechanism.forces, *forces),
            params={**mechanism.params, **added},
        )
        candidates[law] = Identifiable(
            whole.system,
            dict(whole.params),
            observe,
            start,
            free=(*free, *added),
            bounds={**(bounds or {}), **dict.fromkeys(added, (0, None))},
        )
    return candidates


def _friction(joint: Joint, numbers: Sequence[str], speed: float) -> Any:
    values: dict[str, Any] = {"coulomb": 0.0}
    values |= {number: f"{joint.name}.{number}" for number in numbers}
    return friction(f"friction in {joint.name}", joint, smooth=_SMOOTH * speed, **values)
