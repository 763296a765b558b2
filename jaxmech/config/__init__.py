"""Configuration files and run folders.

Read `errors` first, then `toml` (files, and plain data into dataclasses and back, with the names of
policies, lines of errors and help), `load` (model files, with the recorded inputs and the
controllers of a study), `run_folder`, and `frames` (columns of tables).
"""

from jaxmech.config.frames import Rows as Rows
from jaxmech.config.load import Subject as Subject
from jaxmech.config.load import SubjectInputs as SubjectInputs
from jaxmech.config.load import described as described
from jaxmech.config.load import find as find
from jaxmech.config.load import load as load
from jaxmech.config.run_folder import RunFolder as RunFolder
from jaxmech.config.run_folder import environment as environment
from jaxmech.config.run_folder import flush as flush
from jaxmech.config.run_folder import npz as npz
from jaxmech.config.run_folder import write_whole as write_whole
from jaxmech.config.toml import OneOf as OneOf
from jaxmech.config.toml import key_descriptions as key_descriptions
from jaxmech.config.toml import located as located
from jaxmech.config.toml import plain as plain
from jaxmech.config.toml import python_files as python_files
from jaxmech.config.toml import read as read
from jaxmech.config.toml import structure as structure
from jaxmech.config.toml import with_copies as with_copies
