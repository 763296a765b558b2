"""Monte Carlo studies: read `study`, `draws`, `kernel`, `run`, in this order.

`study` is the configuration, `draws` makes the initial states and parameters from `distributions`,
`kernel` computes a block of trajectories, `store` and `layout` write it, `results` opens it again,
and `summary` describes it.
"""

from jaxmech.config.convert import plain as plain
from jaxmech.config.errors import StudyError as StudyError
from jaxmech.config.load import load as load
from jaxmech.config.run_folder import FolderError as FolderError
from jaxmech.config.run_folder import RunWarning as RunWarning
from jaxmech.ensemble.checksums import Damage as Damage
from jaxmech.ensemble.distributions import DISTRIBUTIONS as DISTRIBUTIONS
from jaxmech.ensemble.distributions import Distribution as Distribution
from jaxmech.ensemble.distributions import Fixed as Fixed
from jaxmech.ensemble.distributions import LogNormal as LogNormal
from jaxmech.ensemble.distributions import Normal as Normal
from jaxmech.ensemble.distributions import Sobol as Sobol
from jaxmech.ensemble.distributions import Uniform as Uniform
from jaxmech.ensemble.draws import draw as draw
from jaxmech.ensemble.draws import name_problems as name_problems
from jaxmech.ensemble.results import Results as Results
from jaxmech.ensemble.results import open_results as open_results
from jaxmech.ensemble.results import verify as verify
from jaxmech.ensemble.run import run as run
from jaxmech.ensemble.study import Study as Study
from jaxmech.ensemble.study import Times as Times
from jaxmech.ensemble.summary import as_table as as_table
from jaxmech.ensemble.summary import failed as failed
