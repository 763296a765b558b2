"""Joint distribution of the drawn variables of a study: `settings`, then `designs` and `table`.

`plans` lists the draws: the variables of the model, and the distribution of each.
"""

from jaxmech.ensemble.sampling.settings import Correlation as Correlation
from jaxmech.ensemble.sampling.settings import Sampling as Sampling
