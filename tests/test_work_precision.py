"""The command of the work-precision diagrams, on an oscillator and on published motions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmech as jm
from experiments.work_precision.__main__ import diagram, measure, write_report
from experiments.work_precision.cases import Case, cases
from experiments.work_precision.contenders import adaptive
from experiments.work_precision.report import slope
from tests.published import published

NAMES = "Adaptive, Tsitouras 5", "RK4, fixed step", "scipy DOP853"


def oscillator() -> Case:
    """x'' = -k x from x = 1 at rest."""
    system = jm.System(lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q, coordinates=("x",))

    def exact(k: float, t: float) -> np.ndarray:
        w = np.sqrt(k)
        return np.array([np.cos(w * t), -w * np.sin(w * t)])

    start = np.array([1.0]), np.array([0.0])
    return Case("double_pendulum", system, {"k": 4.0}, *start, 2.0, "k", 0.1, exact=exact)


@pytest.mark.slow
def test_a_tiny_case(tmp_path: Path) -> None:
    measure(oscillator(), 3, tmp_path, (1e-4, 1e-6), NAMES)
    path = tmp_path / "double_pendulum.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["size"] == 3
    assert list(found["single"]) == list(NAMES)
    assert list(found["batch"]) == list(NAMES[:2])
    one, many = (found[kind]["Adaptive, Tsitouras 5"] for kind in ("single", "batch"))
    assert (one["trajectories"], many["trajectories"]) == (1, 3)
    for row, tolerance in zip(one["rows"], (1e-4, 1e-6), strict=True):
        assert row["setting"] == tolerance
        assert 0.01 * tolerance < row["error"] < 30 * tolerance
        assert row["largest"] >= 0.5 * row["error"]
        assert row["evaluations"] == 2 + 6 * row["steps"]
    errors = np.array([row["error"] for row in found["single"]["RK4, fixed step"]["rows"]])
    np.testing.assert_allclose(errors[:3] / errors[1:4], 256.0, rtol=0.2)

    found["single"][NAMES[0]]["rows"][0]["error"] = 0.25  # kept, as it is not measured again
    del found["single"][NAMES[2]]
    path.write_text(json.dumps(found), encoding="utf-8")
    measure(oscillator(), 3, tmp_path, (1e-4, 1e-6), NAMES)
    again = json.loads(path.read_text(encoding="utf-8"))
    assert again["single"][NAMES[0]]["rows"][0]["error"] == 0.25
    assert again["single"][NAMES[2]]["rows"][0]["error"] < 1e-3
    write_report(tmp_path)
    assert (tmp_path / "double_pendulum.png").stat().st_size > 10_000
    assert "| scipy DOP853 |" in (tmp_path / "work_precision.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="batches of 3, not of 4; delete it, or pass --batch 3"):
        measure(oscillator(), 4, tmp_path, (1e-4, 1e-6), NAMES)


def rows(*numbers: tuple[float, float | None, float]) -> dict[str, Any]:
    names = "setting", "error", "seconds"
    return {
        "trajectories": 2,
        "rows": [dict(zip(names, row, strict=True)) for row in numbers],
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compared"), [("andrews", 7), ("car_axis", 4)])
def test_published_motions_by_the_tolerance_alone(name: str, compared: int) -> None:
    case, numbers = cases()[name], published(name)
    contender = "Adaptive, Dormand-Prince 8"
    tolerances = 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10
    ((_, found),) = diagram(case, None, [contender], tolerances)
    assert 0.8 < slope(found, "largest") < 1.2
    end = adaptive(jm.DormandPrince8())(case, None)(1e-12).end
    assert end is not None
    wanted = np.array(numbers["converged"][:compared])
    assert np.max(np.abs(end[:compared] - wanted) / np.maximum(1.0, np.abs(wanted))) < 1e-10
    digits = np.array(numbers["published"][:compared])
    assert np.max(np.abs(end[:compared] - digits) / np.abs(digits)) < 1e-9
