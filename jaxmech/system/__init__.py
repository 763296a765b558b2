"""A model as a `System`, and M, Q, A and b, its equations of motion.

Read `constraints`, `equations`, then `system`. Beside equations there are inequalities and dry
friction (`unilateral`), states of `first_order`, and `quasi_velocities`. `consistency` tells
whether a state satisfies the constraints, `known` what a system is at a state whose numbers are
known, `generic` what holds at almost every state: whether M is singular, energy is conserved,
equations follow from others.
"""

from jaxmech.system.consistency import Levels as Levels
from jaxmech.system.consistency import extents_at as extents_at
from jaxmech.system.consistency import extents_of_level as extents_of_level
from jaxmech.system.consistency import motion_share as motion_share
from jaxmech.system.consistency import near as near
from jaxmech.system.consistency import on_constraints as on_constraints
from jaxmech.system.constraints import AbstractConstraint as AbstractConstraint
from jaxmech.system.constraints import Acceleration as Acceleration
from jaxmech.system.constraints import Holonomic as Holonomic
from jaxmech.system.constraints import Nonholonomic as Nonholonomic
from jaxmech.system.constraints import rate as rate
from jaxmech.system.equations import EquationsOfMotion as EquationsOfMotion
from jaxmech.system.equations import SingularMass as SingularMass
from jaxmech.system.equations import lagrange_equations as lagrange_equations
from jaxmech.system.generic import Drive as Drive
from jaxmech.system.generic import ImpliedEquations as ImpliedEquations
from jaxmech.system.generic import conserves_energy as conserves_energy
from jaxmech.system.generic import mass_scale as mass_scale
from jaxmech.system.generic import require_entries as require_entries
from jaxmech.system.generic import with_mass_rank as with_mass_rank
from jaxmech.system.known import KnownState as KnownState
from jaxmech.system.known import Violation as Violation
from jaxmech.system.signal import Interpolation as Interpolation
from jaxmech.system.signal import Signal as Signal
from jaxmech.system.system import Params as Params
from jaxmech.system.system import Subject as Subject
from jaxmech.system.system import System as System
from jaxmech.system.system import with_params as with_params
from jaxmech.system.unilateral import Component as Component
from jaxmech.system.unilateral import DryFriction as DryFriction
from jaxmech.system.unilateral import Unilateral as Unilateral
