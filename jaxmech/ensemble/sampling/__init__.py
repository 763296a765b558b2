"""How the drawn variables of a study are spread: `settings` first, then `designs` and `table`."""

from jaxmech.ensemble.sampling.settings import Correlation as Correlation
from jaxmech.ensemble.sampling.settings import Sampling as Sampling
