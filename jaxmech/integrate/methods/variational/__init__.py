"""A method for long times: implicit steps that are symplectic and keep momenta.

`step_equations` are the equations of a step, from a discrete Lagrangian, and `newton` solves them;
`methods` has `RATTLE`, and `requirements` checks the system and the policies.
"""

from jaxmech.integrate.methods.variational.methods import RATTLE as RATTLE
from jaxmech.integrate.methods.variational.methods import Advance as Advance
