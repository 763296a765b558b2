"""The measured pendulums for `jaxmech fit`, from `experiments/measured_pendulum` of this clone."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from experiments.measured_pendulum.pendulums import rig as _rig


def single(law, coordinates="angles"):
    return _rig("single", law, coordinates).subject


def double(law, coordinates="angles"):
    return _rig("double", law, coordinates).subject


def triple(law, coordinates="angles"):
    return _rig("triple", law, coordinates).subject
