"""The measured pendulums for `jaxmech fit`, from `experiments/measured_pendulum` of this clone."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from experiments.measured_pendulum import double as _double
from experiments.measured_pendulum import single as _single
from experiments.measured_pendulum import triple as _triple


def single(law, coordinates="angles"):
    return _single.rig(law, coordinates).subject


def double(law, coordinates="angles"):
    return _double.rig(law, coordinates).subject


def triple(law, coordinates="angles"):
    return _triple.rig(law, coordinates).subject
