"""Controllers with a sample time: a `controller`, and the `closed_loop` of a system with some.

What they remember and give out is the memory of a run, beside q and v. It changes at the sample
times, at which steps end; the functions of the system find the outputs among their parameters.
"""

from jaxmech.control.sampled.closed_loop import MEMORY as MEMORY
from jaxmech.control.sampled.closed_loop import controlled as controlled
from jaxmech.control.sampled.controller import Controller as Controller
