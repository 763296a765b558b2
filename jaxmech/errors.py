"""Errors and warnings of the package, for `except` clauses and filters of warnings."""

from jaxmech.compiler.explain import NativeCodeWarning as NativeCodeWarning
from jaxmech.config.errors import InputError as InputError
from jaxmech.config.errors import StudyError as StudyError
from jaxmech.config.frames import TableError as TableError
from jaxmech.config.run_folder import FolderError as FolderError
from jaxmech.config.run_folder import RunWarning as RunWarning
from jaxmech.config.toml import ConfigError as ConfigError
from jaxmech.integrate.steps.abrupt_changes import TimesWarning as TimesWarning
from jaxmech.integrate.steps.default_steps import StepWarning as StepWarning
from jaxmech.simulate import SimulationError as SimulationError
from jaxmech.utils.parameters import ParameterWarning as ParameterWarning
from jaxmech.utils.precision import PrecisionWarning as PrecisionWarning
