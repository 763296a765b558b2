"""Statistics of a study: reductions over its trajectories, on the device, merged block by block.

Read `protocol` first: the state of a sample, `merge` of two states, and the `result` of one.
`bins` are those of histograms and quantiles, `moments` holds the confidence intervals, too, and
every other file has one kind of statistic.
"""

from jaxmech.ensemble.statistics.catalogue import STATISTICS as STATISTICS
from jaxmech.ensemble.statistics.catalogue import Statistic as Statistic
from jaxmech.ensemble.statistics.covariance import Covariance as Covariance
from jaxmech.ensemble.statistics.custom import Custom as Custom
from jaxmech.ensemble.statistics.custom import Reduction as Reduction
from jaxmech.ensemble.statistics.events import FirstPassage as FirstPassage
from jaxmech.ensemble.statistics.events import Probability as Probability
from jaxmech.ensemble.statistics.histogram import Histogram as Histogram
from jaxmech.ensemble.statistics.moments import Moments as Moments
from jaxmech.ensemble.statistics.protocol import AbstractStatistic as AbstractStatistic
from jaxmech.ensemble.statistics.protocol import Sample as Sample
from jaxmech.ensemble.statistics.quantiles import Quantiles as Quantiles
from jaxmech.ensemble.statistics.sensitivity import SobolIndices as SobolIndices
from jaxmech.ensemble.statistics.worst import Worst as Worst
