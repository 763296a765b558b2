"""Recordings from data frames and Parquet files."""

import numpy as np
import polars as pl
import pytest

from jaxmech.config.errors import StudyError
from jaxmech.identify import Recording, Table, TableError, read_table

COLUMNS = {
    "run": ["a", "a", "a", "b", "b"],
    "t [ms]": [0, 100, 200, 50, 100],
    "theta [deg]": [90.0, None, 0.0, 180.0, 90.0],
    "u": [1.0, 2.0, 3.0, 4.0, 5.0],
}
MEANING = {"observed": "theta", "time": "t", "inputs": {"torque": "u"}, "by": "run"}


@pytest.fixture(params=["dict", "pandas", "polars"])
def frame(request):
    if request.param == "dict":
        return COLUMNS
    frames = pl if request.param == "polars" else pytest.importorskip("pandas")
    return frames.DataFrame(COLUMNS)


def test_a_frame_is_as_many_recordings_as_a_column_has_values(frame) -> None:
    a, b = Recording.from_frame(frame, **MEANING)
    assert (a.name, b.name) == ("a", "b")
    np.testing.assert_allclose(a.ts, [0, 0.1, 0.2])
    np.testing.assert_allclose(a.observed[:, 0], [np.pi / 2, np.nan, 0])
    np.testing.assert_allclose(b.q0[0], np.pi)
    np.testing.assert_array_equal(b.inputs["torque"].values, [4, 5])
    assert a.notes == ("t [ms] was converted to s", "theta [deg] was converted to rad")


def test_an_index_of_dates_counts_in_seconds() -> None:
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2024-05-01T12:00", periods=3, freq="20ms", name="time")
    frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0]}, index=index)
    (one,) = Recording.from_frame(frame, observed=["x"], time="time", v0=["x"])
    np.testing.assert_allclose(one.ts, [0, 0.02, 0.04], rtol=1e-14)
    assert one.notes == ("time was converted to s since the first sample",)


def test_nullable_columns() -> None:
    pandas = pytest.importorskip("pandas")
    column = pandas.array([1, None, 3], dtype="Int64")
    (one,) = Recording.from_frame(pandas.DataFrame({"x": column}), observed=["x"], dt=0.1, v0=["x"])
    np.testing.assert_array_equal(one.observed[:, 0], [1, np.nan, 3])


def test_a_parquet_file(tmp_path) -> None:
    pl.DataFrame(COLUMNS).write_parquet(tmp_path / "swings.parquet")
    table = Table(
        file="swings.parquet", observed=("theta",), time="t", inputs={"torque": "u"},
        recording="run", validation=("b",),
    )  # fmt: skip
    (a,), (b,) = read_table(table, tmp_path)
    np.testing.assert_allclose(a.observed[:, 0], [np.pi / 2, np.nan, 0])
    np.testing.assert_allclose(b.ts, [0.05, 0.1])


def test_dates_that_are_no_times() -> None:
    dates = np.array(["2024-05-01", "2024-05-02", "2024-05-04"], "datetime64[ns]")
    frame = {"day": dates, "x": [1.0, 2.0, 3.0]}
    (one,) = Recording.from_frame(frame, observed=["x"], time="day", v0=["x"])
    np.testing.assert_allclose(one.ts, [0, 86400, 3 * 86400])
    with pytest.raises(TableError, match="row 0: column `day` must hold numbers, but holds '20"):
        Recording.from_frame(frame, observed=["day"], dt=0.1)


def test_an_angle_that_wraps_is_unwrapped() -> None:
    ts = np.arange(81) / 40
    angle = 2.0 + 16.0 * ts
    degrees = np.degrees(angle) % 360
    degrees[40] = np.nan
    frame = {"t": ts, "theta [deg]": degrees}
    (one,) = Recording.from_frame(frame, observed="theta", time="t", wraps="theta")
    np.testing.assert_allclose(np.delete(one.observed[:, 0], 40), np.delete(angle, 40), rtol=1e-12)
    np.testing.assert_allclose(one.v0[:, 0], 16.0, rtol=1e-9)
    with pytest.raises(StudyError, match="must be angles in `observed`, but has 't'"):
        Recording.from_frame(frame, observed="theta [deg]", dt=0.1, wraps="t")
