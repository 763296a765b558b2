"""Best motions: controls and parameters that make a cost smallest, by multiple shooting.

`transcription` makes a problem of finitely many numbers of it, whose functions are those of all
intervals in a batch; `optimize` has Ipopt solve it, and `optimum` is the result.
"""

from jaxmech.control.optimal.optimize import optimize as optimize
from jaxmech.control.optimal.optimum import Optimum as Optimum
from jaxmech.control.optimal.optimum import OptimumStatus as OptimumStatus
