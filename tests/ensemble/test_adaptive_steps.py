"""Studies with adaptive steps, and with methods for stiff systems."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from tests.ensemble.studies import arrays, same_bits, write_study

TEXT = """
model = "pendulum"
size = 6
block = {block}

[times]
end = 2.0
saves = 5

[start]
theta = {{ distribution = "uniform", low = 0.1, high = 2.5 }}

[events]
lowest = {{ of = "x1" }}

[statistics]
when = {{ statistic = "first-passage", of = "lowest" }}

[method]
name = "{method}"

[steps]
{steps}
"""
TOLERANCE = 'name = "Adaptive"\nrtol = 1e-8\natol = 1e-8'


def computed(
    folder: Path, method: str = "DormandPrince5", steps: str = TOLERANCE, block: int = 2
) -> Path:
    text = TEXT.format(method=method, steps=steps, block=block)
    run_study(read(write_study(folder, text), Study), folder / "run", folder=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return computed(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
def test_a_tolerance_with_events_and_statistics(whole, tmp_path) -> None:
    """The same to the bit after a block was lost; the energy of each is kept to the tolerance."""
    found = arrays(whole)
    assert np.array_equal(found["status"], np.zeros(6))
    assert 0 < found["energy_drift"].max() < 1e-5
    assert (found["lowest_count"] > 0).all()
    assert "first-passage" in (whole / "config.toml").read_text()
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "blocks" / "000001").unlink()
    computed(tmp_path)
    assert same_bits(whole, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps"),
    [("Rodas5P", 'name = "Adaptive"\nrtol = 1e-8')],
)
def test_methods_for_stiff_systems(method: str, steps: str, whole, tmp_path) -> None:
    """In other blocks, the same motion and the same times of events."""
    found, wanted = arrays(computed(tmp_path, method, steps, block=3)), arrays(whole)
    assert np.array_equal(found["status"], np.zeros(6))
    np.testing.assert_allclose(found["q"], wanted["q"], atol=1e-5)
    np.testing.assert_allclose(found["lowest_times"], wanted["lowest_times"], atol=1e-5)
