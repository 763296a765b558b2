"""Errors and warnings of the package, for `except` clauses and filters of warnings."""

from jaxmech.compiler import NativeCodeWarning as NativeCodeWarning
from jaxmech.config.errors import ConfigError as ConfigError
from jaxmech.config.errors import FolderError as FolderError
from jaxmech.config.errors import InputError as InputError
from jaxmech.config.errors import RunWarning as RunWarning
from jaxmech.config.errors import StudyError as StudyError
from jaxmech.config.errors import TableError as TableError
from jaxmech.integrate import StepWarning as StepWarning
from jaxmech.integrate import TimesWarning as TimesWarning
from jaxmech.run import SimulationError as SimulationError
from jaxmech.utils.caller import PrecisionWarning as PrecisionWarning
from jaxmech.utils.trees import ParameterWarning as ParameterWarning
