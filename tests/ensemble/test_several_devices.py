"""Studies on several devices: each computes blocks, with bit-identical results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from jaxmech.ensemble.blocks import study_devices
from tests.ensemble.studies import PENDULUM, STUDY, same_bits, write_study

STATISTICS = """
[statistics]
speed = { statistic = "moments", of = "energy" }
"""
SVD = """
[formulation]
solver = "svd"
"""
PROGRAM = """
import json, sys
from pathlib import Path

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from jaxmech.ensemble.blocks import BlockProgram
from jaxmech.utils.jax_internals import Tracer

computed, plain = [], BlockProgram.run

def noted(self, inputs):
    begun = plain(self, inputs)
    if not isinstance(begun.met, Tracer):
        computed.append((int(inputs.first), *(device.id for device in begun.met.devices())))
    return begun

BlockProgram.run = noted
for config in map(Path, sys.argv[1:]):
    run_study(read(config, Study), config.parent / "several", folder=config.parent)
    print(json.dumps(computed))
    computed.clear()
"""


@pytest.mark.slow
def test_the_same_bits_whatever_the_number_of_devices(tmp_path: Path) -> None:
    configs = []
    for name, text in {"plain": STUDY + STATISTICS, "svd": PENDULUM + SVD}.items():
        (tmp_path / name).mkdir()
        configs.append(write_study(tmp_path / name, text))
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, configs)],
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "4", "JAX_ENABLE_X64": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    plain, svd = map(json.loads, told.stdout.splitlines())
    assert plain == [[0, 0], [4, 1], [8, 2], [12, 3], [16, 0]]
    assert svd == [[0, 0], [8, 0]]  # two calls of LAPACK may wait for each other
    config = configs[0]
    run_study(read(config, Study), config.parent / "one", folder=config.parent)
    assert same_bits(config.parent / "several", config.parent / "one")


@pytest.mark.slow
def test_a_requested_device_computes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    one = jax.devices()[0]
    monkeypatch.setattr(jax, "local_devices", lambda: [one, one, one])
    assert len(study_devices()) == 3
    with jax.default_device(one):
        assert study_devices() == [one]
