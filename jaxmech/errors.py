"""Errors and warnings of the package, for `except` clauses and filters of warnings."""

from jaxmech.compiler import NativeCodeWarning as NativeCodeWarning
from jaxmech.config import ConfigError as ConfigError
from jaxmech.config import FolderError as FolderError
from jaxmech.config import RunWarning as RunWarning
from jaxmech.config import TableError as TableError
from jaxmech.config.errors import InputError as InputError
from jaxmech.config.errors import StudyError as StudyError
from jaxmech.integrate import StepWarning as StepWarning
from jaxmech.integrate import TimesWarning as TimesWarning
from jaxmech.run import SimulationError as SimulationError
from jaxmech.utils.caller import PrecisionWarning as PrecisionWarning
from jaxmech.utils.trees import ParameterWarning as ParameterWarning
