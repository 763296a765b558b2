"""Times at which a step ends, and the functions of a system between them.

`spans` has the functions of a system on one side of a time, the grid of saves and times and the
steps of a trial, and `run_times` the times of a run.
"""

from jaxmech.integrate.times.run_times import step_times as step_times
from jaxmech.integrate.times.spans import Intervals as Intervals
from jaxmech.integrate.times.spans import Span as Span
from jaxmech.integrate.times.spans import StepGrid as StepGrid
from jaxmech.integrate.times.spans import span_at as span_at
from jaxmech.integrate.times.spans import within as within
from jaxmech.integrate.times.spans import within_spans as within_spans
