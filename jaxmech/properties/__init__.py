"""Structural properties, which hold at almost every state and are found without concrete values.

`generic` evaluates the functions of a system at fixed pseudo-random states: whether M is singular,
energy is conserved, constraints contain the time. `implied` finds the equations of a joint that
follow from the other joints of its loop.
"""

from jaxmech.properties.generic import Drive as Drive
from jaxmech.properties.generic import conserves_energy as conserves_energy
from jaxmech.properties.generic import constrains_states as constrains_states
from jaxmech.properties.generic import drive_of as drive_of
from jaxmech.properties.generic import function_values as function_values
from jaxmech.properties.generic import mass_and_rows as mass_and_rows
from jaxmech.properties.generic import mass_scale as mass_scale
from jaxmech.properties.generic import reads_integrals as reads_integrals
from jaxmech.properties.generic import require_entries as require_entries
from jaxmech.properties.generic import singular_mass as singular_mass
from jaxmech.properties.generic import with_mass_rank as with_mass_rank
from jaxmech.properties.implied import terms_of as terms_of
from jaxmech.properties.implied import without_implied as without_implied
