"""A method for long times: implicit steps that are symplectic and keep momenta.

`methods` has `RATTLE` and the equations of its steps, from a discrete Lagrangian, and `newton`
solves them; and `requirements` checks the system and the policies.
"""

from jaxmech.integrate.methods.variational.methods import RATTLE as RATTLE
from jaxmech.integrate.methods.variational.methods import Advance as Advance
