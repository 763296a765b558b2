"""The statistics that a study may have, by their names in a configuration."""

from typing import Annotated

from jaxmech.config import OneOf
from jaxmech.ensemble.statistics.covariance import Covariance
from jaxmech.ensemble.statistics.custom import Custom
from jaxmech.ensemble.statistics.events import FirstPassage, Probability
from jaxmech.ensemble.statistics.histogram import Histogram
from jaxmech.ensemble.statistics.moments import Moments
from jaxmech.ensemble.statistics.protocol import AbstractStatistic
from jaxmech.ensemble.statistics.quantiles import Quantiles
from jaxmech.ensemble.statistics.sensitivity import SobolIndices
from jaxmech.ensemble.statistics.worst import Worst

STATISTICS: dict[str, type[AbstractStatistic]] = {
    "moments": Moments,
    "probability": Probability,
    "first-passage": FirstPassage,
    "quantiles": Quantiles,
    "histogram": Histogram,
    "covariance": Covariance,
    "sobol-indices": SobolIndices,
    "worst": Worst,
    "custom": Custom,
}
Statistic = Annotated[AbstractStatistic, OneOf(STATISTICS, tag="statistic")]
