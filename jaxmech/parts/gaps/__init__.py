"""Stops, backlash, contacts, ropes and dry friction: parts with inequalities.

`base` makes unilateral constraints of gaps, `in_joints` are gaps of the coordinates of joints, and
`between_points` those of points of bodies; `ropes` run from body to body, and round drums;
`rubbing` is dry friction in joints.
"""

from jaxmech.parts.gaps.base import Gap as Gap
from jaxmech.parts.gaps.between_points import contact as contact
from jaxmech.parts.gaps.in_joints import backlash as backlash
from jaxmech.parts.gaps.in_joints import stop as stop
from jaxmech.parts.gaps.ropes import Drum as Drum
from jaxmech.parts.gaps.ropes import rope as rope
from jaxmech.parts.gaps.rubbing import dry_friction as dry_friction
