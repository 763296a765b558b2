"""Times at which a step ends, and the functions of a system between them.

`spans` has the functions of a system on one side of a time and
the grid of saves and times, and `even_steps` the steps of a trial. `corners` reads corners and
jumps from the functions, `run_times` finds their times in a run, and `pulses` samples the forces
for short pulses.
"""

from jaxmech.integrate.times.corners import constraints_have_corners as constraints_have_corners
from jaxmech.integrate.times.run_times import step_times as step_times
from jaxmech.integrate.times.spans import Span as Span
from jaxmech.integrate.times.spans import StepGrid as StepGrid
from jaxmech.integrate.times.spans import span_at as span_at
from jaxmech.integrate.times.spans import within as within
from jaxmech.integrate.times.spans import within_spans as within_spans
