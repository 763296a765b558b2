"""A model as a `System`, and M, Q, A and b, its equations of motion.

Read `constraints`, `equations`, then `system`. Beside equations there are inequalities and dry
friction (`unilateral`), states of `first_order`, and `quasi_velocities`. `consistency`
tells whether a state satisfies the constraints, `generic` what holds at almost every state: whether
M is singular, energy is conserved, equations follow from others.
"""

from jaxmech.system.consistency import Violation as Violation
from jaxmech.system.consistency import constraint_jacobians as constraint_jacobians
from jaxmech.system.consistency import extents_at as extents_at
from jaxmech.system.consistency import extents_at_known as extents_at_known
from jaxmech.system.consistency import extents_of_level as extents_of_level
from jaxmech.system.consistency import finite_extents as finite_extents
from jaxmech.system.consistency import independent_equations as independent_equations
from jaxmech.system.consistency import levels_are_met as levels_are_met
from jaxmech.system.consistency import levels_at_known as levels_at_known
from jaxmech.system.consistency import levels_of as levels_of
from jaxmech.system.consistency import motion_share as motion_share
from jaxmech.system.consistency import near as near
from jaxmech.system.consistency import near_rates as near_rates
from jaxmech.system.consistency import on_constraints as on_constraints
from jaxmech.system.consistency import reach as reach
from jaxmech.system.consistency import sizes_of_levels as sizes_of_levels
from jaxmech.system.consistency import violations as violations
from jaxmech.system.consistency import without_mass as without_mass
from jaxmech.system.constraints import AbstractConstraint as AbstractConstraint
from jaxmech.system.constraints import Acceleration as Acceleration
from jaxmech.system.constraints import Holonomic as Holonomic
from jaxmech.system.constraints import Nonholonomic as Nonholonomic
from jaxmech.system.constraints import rate as rate
from jaxmech.system.equations import EquationsOfMotion as EquationsOfMotion
from jaxmech.system.equations import SingularMass as SingularMass
from jaxmech.system.equations import generalized_force as generalized_force
from jaxmech.system.equations import mass_matrix as mass_matrix
from jaxmech.system.first_order import largest as largest
from jaxmech.system.first_order import named_values as named_values
from jaxmech.system.first_order import padded as padded
from jaxmech.system.first_order import require_no_states as require_no_states
from jaxmech.system.first_order import spread as spread
from jaxmech.system.first_order import without_states as without_states
from jaxmech.system.generic import Drive as Drive
from jaxmech.system.generic import conserves_energy as conserves_energy
from jaxmech.system.generic import constrains_states as constrains_states
from jaxmech.system.generic import drive_of as drive_of
from jaxmech.system.generic import function_values as function_values
from jaxmech.system.generic import mass_and_rows as mass_and_rows
from jaxmech.system.generic import mass_scale as mass_scale
from jaxmech.system.generic import reads_integrals as reads_integrals
from jaxmech.system.generic import require_entries as require_entries
from jaxmech.system.generic import singular_mass as singular_mass
from jaxmech.system.generic import terms_of as terms_of
from jaxmech.system.generic import with_mass_rank as with_mass_rank
from jaxmech.system.generic import without_implied as without_implied
from jaxmech.system.quasi_velocities import Rates as Rates
from jaxmech.system.signal import Interpolation as Interpolation
from jaxmech.system.signal import Signal as Signal
from jaxmech.system.signal import is_signal as is_signal
from jaxmech.system.signal import thinned as thinned
from jaxmech.system.system import Params as Params
from jaxmech.system.system import Subject as Subject
from jaxmech.system.system import System as System
from jaxmech.system.system import in_rates as in_rates
from jaxmech.system.system import system_of as system_of
from jaxmech.system.system import with_params as with_params
from jaxmech.system.unilateral import MOST as MOST
from jaxmech.system.unilateral import Component as Component
from jaxmech.system.unilateral import DryFriction as DryFriction
from jaxmech.system.unilateral import Unilateral as Unilateral
from jaxmech.system.unilateral import require_limits as require_limits
from jaxmech.system.unilateral import require_no_gaps as require_no_gaps
from jaxmech.system.unilateral import require_restitutions as require_restitutions
from jaxmech.system.unilateral import require_smooth as require_smooth
