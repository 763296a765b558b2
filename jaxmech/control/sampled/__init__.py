"""Controllers with a sample time: a `controller`, all of a system, and a `controlled` system.

What a controller remembers and what it gives out are states of first order whose rate is zero. A
`controller_set` changes them at the sample times, at which steps end, and `reading` lets the
functions of the system read outputs by name.
"""

from jaxmech.control.sampled.controlled import controlled as controlled
from jaxmech.control.sampled.controller import Controller as Controller
from jaxmech.control.sampled.reading import WholeState as WholeState
