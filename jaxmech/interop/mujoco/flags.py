"""What the flags of a model switch off."""

from typing import Any

from jaxmech.interop.mujoco.source import mujoco


def is_on(flag: str, model: Any) -> bool:
    """Whether a model does not disable something, such as "gravity".

    Springs and dampers once were one flag. Without constraints there are no equalities, limits,
    contacts and friction either.
    """
    bits = mujoco().mjtDisableBit
    passive = getattr(bits, "mjDSBL_PASSIVE", 0)
    bit = int(getattr(bits, f"mjDSBL_{flag.upper()}", passive))
    if flag in ("equality", "limit", "contact", "frictionloss"):
        bit |= int(bits.mjDSBL_CONSTRAINT)
    return not int(model.opt.disableflags) & bit
