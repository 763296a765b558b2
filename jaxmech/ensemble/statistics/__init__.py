"""Statistics of a study: reductions over its trajectories, on the device, merged block by block.

Read `protocol` first: the state of a sample, `merge` of two states, and the `result` of one.
The user's own statistics are there, too. `moments` also holds probabilities, first passages and
the confidence intervals, and `histogram` the bins, by which quantiles are computed as well.
"""

from jaxmech.ensemble.statistics.histogram import Histogram as Histogram
from jaxmech.ensemble.statistics.histogram import Quantiles as Quantiles
from jaxmech.ensemble.statistics.moments import FirstPassage as FirstPassage
from jaxmech.ensemble.statistics.moments import Moments as Moments
from jaxmech.ensemble.statistics.moments import Probability as Probability
from jaxmech.ensemble.statistics.protocol import AbstractStatistic as AbstractStatistic
from jaxmech.ensemble.statistics.protocol import Custom as Custom
from jaxmech.ensemble.statistics.protocol import Reduction as Reduction
from jaxmech.ensemble.statistics.protocol import Sample as Sample
