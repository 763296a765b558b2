"""The period of a pendulum, T = 4 sqrt(l / g) K(sin(theta / 2)): sensitivities and a rare event."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ellipk

from jaxmech.config.toml import read
from jaxmech.ensemble import Study
from jaxmech.ensemble.run import run_study

CONFIG = (Path(__file__).resolve().parents[2] / "configs" / "period.toml").read_text()
FACTOR = float(ellipk(np.sin(1.0) ** 2))  # of sqrt(l / g) in the first passage, for 2 rad


def ran(folder: Path, text: str) -> dict[str, np.ndarray]:
    path = folder / "study.toml"
    path.write_text(text)
    run_study(read(path, Study), folder / "run")
    with np.load(folder / "run" / "statistics.npz") as found:
        return {name: found[name] for name in found.files}


def indices(lengths: tuple[float, float], gravity: tuple[float, float]) -> tuple[Any, Any]:
    """Sobol indices of sqrt(l / g), a product of functions of independent uniform numbers."""
    (a, b), (c, d) = lengths, gravity
    mean = np.array([(b**1.5 - a**1.5) / 1.5 / (b - a), 2 * (d**0.5 - c**0.5) / (d - c)])
    square = np.array([(a + b) / 2, np.log(d / c) / (d - c)])
    variance = square.prod() - mean.prod() ** 2
    own = square - mean**2
    return own * mean[::-1] ** 2 / variance, own * square[::-1] / variance


@pytest.mark.slow
def test_sobol_indices_of_the_period(tmp_path: Path) -> None:
    found = ran(tmp_path, CONFIG.replace("16_384", "4_096").replace("= 150", "= 60"))
    first, total = indices((0.5, 1.5), (5.0, 15.0))
    for name, truth in (("first_order", first), ("total", total)):
        got, low, high = (found[f"indices/{name}{end}"] for end in ("", "_low", "_high"))
        np.testing.assert_allclose(got, truth, atol=5e-3)
        assert np.all((low <= truth) & (truth <= high))
        assert np.all(high - low < 0.2)
