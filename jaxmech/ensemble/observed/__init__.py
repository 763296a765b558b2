"""What a study asks about a trajectory: `quantities` at saved times, and `events` between them.

`names` finds quantities that are given twice, or that nothing has.
"""

from jaxmech.ensemble.observed.events import StudyEvent as StudyEvent
from jaxmech.ensemble.observed.quantities import Observed as Observed
