"""Stops, contacts, ropes and dry friction: parts with inequalities.

`base` makes unilateral constraints of gaps, `in_joints` are gaps of the coordinates of joints and
dry friction in them, and `between_points` gaps of points of bodies; `ropes` run from body to body.
"""

from jaxmech.parts.gaps.base import Gap as Gap
from jaxmech.parts.gaps.between_points import contact as contact
from jaxmech.parts.gaps.in_joints import dry_friction as dry_friction
from jaxmech.parts.gaps.in_joints import stop as stop
from jaxmech.parts.gaps.ropes import rope as rope
