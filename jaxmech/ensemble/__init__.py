"""Monte Carlo studies: what they are made of, in the order of reading.

`study` is the configuration, and `draws/` make initial states and parameters of its members.
`members/` holds one motion as a function of its draws, and `statistics/` reduce many of them.
`blocks/` compute a block of members after the other, `run` all of them, in this process or on the
workers of a `cluster`, and `store/` writes and reads the run folder. `finished/` summarizes and
replays runs. `failure/` computes probabilities too small for all of this.

`__all__` is what a user writes; the rest are types of results, and what commands and pictures need.
"""

from jaxmech.ensemble.draws.designs import Correlation as Correlation
from jaxmech.ensemble.draws.designs import Sampling as Sampling
from jaxmech.ensemble.draws.distributions import Discrete as Discrete
from jaxmech.ensemble.draws.distributions import Fixed as Fixed
from jaxmech.ensemble.draws.distributions import LogNormal as LogNormal
from jaxmech.ensemble.draws.distributions import Normal as Normal
from jaxmech.ensemble.draws.distributions import Scipy as Scipy
from jaxmech.ensemble.draws.distributions import Uniform as Uniform
from jaxmech.ensemble.draws.inputs import RecordedInput as RecordedInput
from jaxmech.ensemble.draws.inputs import WhiteNoise as WhiteNoise
from jaxmech.ensemble.failure.probability import failure_probability as failure_probability
from jaxmech.ensemble.failure.result import DesignPoint as DesignPoint
from jaxmech.ensemble.failure.result import FailureEstimate as FailureEstimate
from jaxmech.ensemble.failure.result import FailureProbability as FailureProbability
from jaxmech.ensemble.finished.dataset import open as open  # noqa: A004
from jaxmech.ensemble.finished.replay import ReplayedTrajectory as ReplayedTrajectory
from jaxmech.ensemble.finished.replay import replay as replay
from jaxmech.ensemble.finished.replay import replays as replays
from jaxmech.ensemble.finished.summary import as_table as as_table
from jaxmech.ensemble.finished.summary import failed as failed
from jaxmech.ensemble.finished.summary import summarize as summarize
from jaxmech.ensemble.members.observed import SERIES as SERIES
from jaxmech.ensemble.members.observed import Observed as Observed
from jaxmech.ensemble.members.observed import StudyEvent as StudyEvent
from jaxmech.ensemble.run import run_study as run_study
from jaxmech.ensemble.statistics import Custom as Custom
from jaxmech.ensemble.statistics import FirstPassage as FirstPassage
from jaxmech.ensemble.statistics import Histogram as Histogram
from jaxmech.ensemble.statistics import Moments as Moments
from jaxmech.ensemble.statistics import Probability as Probability
from jaxmech.ensemble.statistics import Quantiles as Quantiles
from jaxmech.ensemble.statistics import Reduction as Reduction
from jaxmech.ensemble.statistics import Sample as Sample
from jaxmech.ensemble.store.results import Results as Results
from jaxmech.ensemble.store.results import array_of as array_of
from jaxmech.ensemble.store.results import open_results as open_results
from jaxmech.ensemble.study import Failure as Failure
from jaxmech.ensemble.study import Study as Study
from jaxmech.ensemble.study import Times as Times

__all__ = [
    "Correlation",
    "Custom",
    "Discrete",
    "Failure",
    "FailureProbability",
    "FirstPassage",
    "Fixed",
    "Histogram",
    "LogNormal",
    "Moments",
    "Normal",
    "Observed",
    "Probability",
    "Quantiles",
    "RecordedInput",
    "Reduction",
    "Results",
    "Sampling",
    "Scipy",
    "Study",
    "StudyEvent",
    "Times",
    "Uniform",
    "WhiteNoise",
    "failure_probability",
    "open",
    "open_results",
    "replay",
    "run_study",
]
