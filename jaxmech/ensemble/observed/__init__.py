"""Observations of a trajectory: `quantities` at saved times, and `events` between them."""

from jaxmech.ensemble.observed.events import StudyEvent as StudyEvent
from jaxmech.ensemble.observed.quantities import Observed as Observed
