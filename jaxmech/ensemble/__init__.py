"""Monte Carlo studies: what they are made of, in the order of reading.

`study` is the configuration, with `distributions` and `statistics`; `draws` make initial states and
parameters of its members, and a `member` is one motion as a function of its draws. The `plan` of a
study has its functions and inputs, after all checks. `blocks` compute a block of members after the
other, `run` all of them, in this process or on the workers of a `cluster`, and `store` writes and
reads the run folder, of which there is a `summary`, and `replay`. `failure/` computes probabilities
too small for all of this.

`__all__` is what a user writes; the rest are types of results, and what commands and pictures need.
"""

from jaxmech.ensemble.distributions import Discrete as Discrete
from jaxmech.ensemble.distributions import Fixed as Fixed
from jaxmech.ensemble.distributions import LogNormal as LogNormal
from jaxmech.ensemble.distributions import Normal as Normal
from jaxmech.ensemble.distributions import Scipy as Scipy
from jaxmech.ensemble.distributions import Uniform as Uniform
from jaxmech.ensemble.failure.methods import FailureEstimate as FailureEstimate
from jaxmech.ensemble.failure.probability import DesignPoint as DesignPoint
from jaxmech.ensemble.failure.probability import FailureProbability as FailureProbability
from jaxmech.ensemble.failure.probability import failure_probability as failure_probability
from jaxmech.ensemble.replay import replay as replay
from jaxmech.ensemble.replay import replays as replays
from jaxmech.ensemble.run import run_study as run_study
from jaxmech.ensemble.statistics import FirstPassage as FirstPassage
from jaxmech.ensemble.statistics import Histogram as Histogram
from jaxmech.ensemble.statistics import Moments as Moments
from jaxmech.ensemble.statistics import Probability as Probability
from jaxmech.ensemble.statistics import Quantiles as Quantiles
from jaxmech.ensemble.store import Results as Results
from jaxmech.ensemble.store import open as open  # noqa: A004
from jaxmech.ensemble.store import open_results as open_results
from jaxmech.ensemble.study import SERIES as SERIES
from jaxmech.ensemble.study import Correlation as Correlation
from jaxmech.ensemble.study import Failure as Failure
from jaxmech.ensemble.study import Observed as Observed
from jaxmech.ensemble.study import RecordedInput as RecordedInput
from jaxmech.ensemble.study import Sampling as Sampling
from jaxmech.ensemble.study import Study as Study
from jaxmech.ensemble.study import StudyEvent as StudyEvent
from jaxmech.ensemble.study import Times as Times
from jaxmech.ensemble.study import WhiteNoise as WhiteNoise
from jaxmech.ensemble.summary import as_table as as_table
from jaxmech.ensemble.summary import failed as failed
from jaxmech.ensemble.summary import summarize as summarize

__all__ = [
    "Correlation",
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
