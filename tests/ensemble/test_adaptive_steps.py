"""Studies with adaptive steps, and with methods for stiff systems."""

from pathlib import Path

import numpy as np
import pytest

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from tests.ensemble.studies import arrays, write_study

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
name = "Adaptive"
rtol = 1e-8
atol = 1e-8
"""


def computed(folder: Path, method: str = "DormandPrince5", block: int = 2) -> Path:
    text = TEXT.format(method=method, block=block)
    run_study(read(write_study(folder, text), Study), folder / "run", folder=folder)
    return folder / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return computed(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
def test_a_tolerance_with_events_and_statistics(whole) -> None:
    """The energy of each trajectory is kept to the tolerance."""
    found = arrays(whole)
    assert np.array_equal(found["status"], np.zeros(6))
    assert 0 < found["energy_drift"].max() < 1e-5
    assert (found["lowest_count"] > 0).all()
    assert "first-passage" in (whole / "config.toml").read_text()


@pytest.mark.slow
def test_a_method_for_stiff_systems(whole, tmp_path) -> None:
    """In other blocks, the same motion and the same times of events."""
    found, wanted = arrays(computed(tmp_path, "Rodas5P", block=3)), arrays(whole)
    assert np.array_equal(found["status"], np.zeros(6))
    np.testing.assert_allclose(found["q"], wanted["q"], atol=1e-5)
    np.testing.assert_allclose(found["lowest_times"], wanted["lowest_times"], atol=1e-5)
