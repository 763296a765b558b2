"""Units of columns: known, of the coordinate, and those of the numbers that are drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import Table, read_table
from jaxmech.plot.fit import fit_over_data
from jaxmech.utils.units import dimension

SLIDE = jm.System(lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q, coordinates={"x": "m"})
TS = np.arange(41) / 20


def recording(title: str, size: float = 1.0, **columns: Any) -> jm.Recording:
    """A spring that is let go at 0.1 m, in a column of so many units for a metre."""
    x = size * 0.1 * np.cos(3.0 * TS)
    columns = {"observed": [title], "time": "t [s]"} | columns
    (one,) = jm.Recording.from_frame({"t [s]": TS, title: x, "v [mm/s]": 0 * TS}, **columns)
    return one


def fitted(one: jm.Recording, system: jm.System = SLIDE) -> jm.identify.Fit:
    return jm.fit(system, one, {"k": 8.0}, steps=jm.FixedSteps(2))


def test_values_and_label_of_a_picture_are_of_one_unit() -> None:
    found = fitted(recording("x [mm]", 1e3))
    assert found.values == pytest.approx([9.0], rel=1e-5)
    ax = fit_over_data(found)
    assert "[m]" in ax.get_ylabel()
    assert "mm" not in ax.get_ylabel()
    assert np.abs(ax.lines[0].get_ydata()).max() == pytest.approx(0.1)
    assert "x [m]" in " ".join(ax.get_legend_handles_labels()[1]) or len(ax.lines) == 2


@pytest.mark.parametrize(("title", "unit"), [("x [deg]", "rad"), ("x [N]", "N"), ("x [s]", "s")])
def test_a_column_of_another_dimension(title: str, unit: str) -> None:
    with pytest.raises(ValueError, match=f"'x' of frame is in {unit}, and 'x' in m"):
        fitted(recording(title))


def test_starts_and_sizes_too() -> None:
    turning = jm.System(SLIDE.lagrangian, coordinates={"x": "rad"})
    with pytest.raises(ValueError, match=r"'v' of frame is in m/s, and 'x.rate' in rad/s"):
        fitted(recording("x", v0=["v [mm/s]"]), turning)
    with pytest.raises(ValueError, match="'x' of frame is in m, and 'x' in mm"):
        fitted(recording("x [mm]"), jm.System(SLIDE.lagrangian, coordinates={"x": "mm"}))


def test_dimensions() -> None:
    for same in (("J", "N m"), ("Hz", "1/s"), ("Pa", "N/m^2"), ("V", "W/A"), ("mm", "ft")):
        assert dimension(same[0]) == dimension(same[1]), same
    for unlike in (("Hz", "rad/s"), ("N", "m"), ("rad", "1"), ("m/s", "m/s^2")):
        assert dimension(unlike[0]) != dimension(unlike[1]), unlike


def test_missing_measurements_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    rows = [f"{t},{'' if k in (3, 9) else 0.1 * np.cos(3.0 * t)}" for k, t in enumerate(TS)]
    file.write_text("t [s],x [m]\n" + "\n".join(rows) + "\n")
    (one,) = read_table(Table(file=str(file), observed=("x",), time="t")).train
    found = fitted(one)
    assert found.data_notes == ("2 of 41 measurements are missing",)
    assert "2 of 41 measurements are missing" in repr(found)
