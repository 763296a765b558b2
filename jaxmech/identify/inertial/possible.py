"""Whether fitted masses, inertias and sizes are those of parts that can exist."""

from collections.abc import Mapping

import jax
import numpy as np

from jaxmech.parts import EnergyDifference, JointLoads, reads_parameters, require_possible
from jaxmech.system import Params, System


def impossible(system: System, params: Params) -> str:
    """A warning of the first part that cannot exist with these parameters, or an empty text.

    Example:
        >>> from jaxmech.parts import Mechanism, planar_body
        >>> rod = planar_body("rod", mass="m", inertia=1.0)
        >>> system = Mechanism([rod], params={"m": 1.0}).system
        >>> impossible(system, {"m": -0.5}).partition(":")[2].partition(".")[0]
        " body 'rod' must have zero or a positive number as `mass`, but has -0"
    """
    energy, loads = system.plain.lagrangian, system.loads
    if not (isinstance(energy, EnergyDifference) and isinstance(params, Mapping)):
        return ""
    bodies = filter(reads_parameters, energy.kinematics.bodies)
    joints = [joint for joint, _ in loads.joints] if isinstance(loads, JointLoads) else []
    known = {name: jax.tree.map(np.asarray, value) for name, value in params.items()}
    try:
        require_possible(bodies, filter(reads_parameters, joints), known)
    except ValueError as error:
        fault = str(error).rpartition(";")[0]
        return (
            f"Nothing has the fitted parameters: {fault[:1].lower()}{fault[1:]}. Give `bounds` "
            "such as (0, None), or for an inertia name the body in `free`, which keeps all its "
            "numbers possible."
        )
    return ""
