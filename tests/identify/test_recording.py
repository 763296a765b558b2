"""A `Recording`, and recordings from files and data frames, with units."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import jaxmech as jm
from jaxmech.config.errors import StudyError
from jaxmech.identify import Recording, Table, TableError, read_table
from jaxmech.plot.fit import fit_over_data
from jaxmech.utils.units import dimension, si_unit

NAN = float("nan")
GIVEN: dict[str, Any] = {
    "ts": [0.0, 0.1, 0.3],
    "observed": [[1.0, 2.0], [NAN, 3.0], [2.0, 4.0]],
    "q0": [1.0],
    "v0": [0.0],
}


def test_shapes_are_completed() -> None:
    one = Recording(**GIVEN, weights=[2.0, 3.0], start_sd=(0.1, [0.2]), name="swing")
    assert one.count == 5
    assert one.observed.shape == (3, 2)
    assert [sd.shape for sd in one.start_sd] == [(1,), (1,)]
    assert repr(one) == "Recording(swing: 3 samples of 2 sensors in 0.3 s, 1 missing)"
    single = Recording([0.0, 1.0], [1.0, 2.0], [0.0], [0.0])
    assert single.observed.shape == (2, 1)


def test_every_second_sample() -> None:
    ts = np.arange(7) / 10
    guesses = np.arange(14.0).reshape(7, 2)
    weights = np.arange(1.0, 8.0)[:, None]
    one = Recording(ts, ts**2, guesses, guesses + 1, weights=weights, name="a").every(3)
    np.testing.assert_array_equal(one.ts, ts[[0, 3, 6]])
    np.testing.assert_array_equal(one.observed[:, 0], ts[[0, 3, 6]] ** 2)
    np.testing.assert_array_equal(one.q0, guesses[[0, 3, 6]])
    np.testing.assert_array_equal(one.v0, guesses[[0, 3, 6]] + 1)
    np.testing.assert_array_equal(one.weights[:, 0], [1.0, 4.0, 7.0])
    assert one.name == "a"
    with pytest.raises(ValueError, match="`stride` must be a positive integer"):
        one.every(0)


def test_of_seconds_since_1970_the_first_is_subtracted() -> None:
    """Double precision resolves them to 2.4e-7 s only, a part of the steps."""
    ts, epoch = np.linspace(0.0, 6.0, 121), 1.7e9
    one = Recording(epoch + ts, np.sin(ts), [0.0], [1.0])
    assert one.origin == epoch
    np.testing.assert_allclose(one.ts, ts, atol=3e-7)
    assert "times since 1700000000 s" in repr(one)
    assert one.every(2).origin == epoch
    late = Recording(1000.0 + ts, np.sin(ts), [0.0], [1.0])  # as the functions may need them
    assert late.origin == 0.0
    assert late.ts[0] == 1000.0


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


SLIDE = jm.System(lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q, coordinates={"x": "m"})
TS = np.arange(41) / 20


def recording(title: str, size: float = 1.0, **columns: Any) -> jm.Recording:
    """A spring that is let go at 0.1 m, in a column of so many units for a metre."""
    x = size * 0.1 * np.cos(3.0 * TS)
    columns = {"observed": [title], "time": "t [s]"} | columns
    (one,) = jm.Recording.from_frame({"t [s]": TS, title: x, "v [mm/s]": 0 * TS}, **columns)
    return one


def fitted(one: jm.Recording, system: jm.System = SLIDE, validation: Any = ()) -> jm.identify.Fit:
    return jm.fit(system, one, {"k": 8.0}, validation=validation, steps=jm.FixedSteps(2))


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
    with pytest.raises(ValueError, match="'x' of frame is in rad, and 'x' in m"):
        fitted(recording("x"), validation=recording("x [deg]"))
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


SWINGS = """\
# a comment
swing,t,theta,omega
a,0.0,0.30,0.0
a,0.1,0.28,-0.3

b,1.0,0.50,0.1
b,1.2,,nan
b,1.3,0.44,-0.2
"""


def written(folder: Path, text: str = SWINGS, name: str = "swings.csv") -> Table:
    (folder / name).write_text(text)
    return Table(
        file=name, observed=("theta",), v0=("omega",), time="t", recording="swing", train=("a",),
        validation=("b",),
    )  # fmt: skip


def test_csv_with_recordings_in_a_column(tmp_path) -> None:
    table = written(tmp_path)
    (a,), (b,) = read_table(table, tmp_path)
    assert (a.name, b.name) == ("a", "b")
    np.testing.assert_array_equal(b.ts, [1.0, 1.2, 1.3])
    np.testing.assert_array_equal(b.observed, [[0.5], [np.nan], [0.44]])
    np.testing.assert_array_equal(b.q0[0], [0.5])
    np.testing.assert_array_equal(b.v0, [[0.1], [np.nan], [-0.2]])


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_and_files_as_recordings(tmp_path, separator) -> None:
    for name in ("late", "early"):
        text = "t,x\n0,1\n0.5,2\n1,5\n".replace(",", separator)
        (tmp_path / f"{name}.csv").write_text(text)
    table = Table(file="*.csv", observed=("x",), time="t", validation=("late",), noise_sd=0.5)
    (train,), (held,) = read_table(table, tmp_path)
    assert (train.name, held.name) == ("early", "late")
    assert train.weights == 2.0
    np.testing.assert_allclose(
        train.v0[:, 0], [0.0, 4.0, 8.0], atol=1e-12
    )  # of x = 1 + 4 t^2, exactly


def test_npz_with_filling_and_stride(tmp_path) -> None:
    values = np.arange(24.0).reshape(2, 4, 3)
    values[1, 2:] = np.nan
    np.savez(tmp_path / "d.npz", train=values, more=values[:1], dt=0.5)
    table = Table(
        file="d.npz", observed=("x", 1), q0=(0,), v0=("w",), columns=("x", "y", "w"),
        validation=("more",), start_sd=(0.1, 0.2),
    )  # fmt: skip
    (long, short), (held,) = read_table(table, tmp_path)
    assert [r.name for r in (long, short, held)] == ["train 0", "train 1", "more"]
    np.testing.assert_array_equal(short.observed, [[12.0, 13.0], [15.0, 16.0]])
    np.testing.assert_array_equal(long.v0[:, 0], [2.0, 5.0, 8.0, 11.0])
    np.testing.assert_array_equal(held.ts, [0.0, 0.5, 1.0, 1.5])
    assert held.start_sd[1] == 0.2
    every = Table(file="d.npz", observed=(0,), stride=2, train=("more",))
    np.testing.assert_array_equal(read_table(every, tmp_path).train[0].ts, [0.0, 1.0])


def test_npz_with_times_of_its_own(tmp_path) -> None:
    ts = np.array([[0.0, 0.1, 0.3], [1.0, 2.0, 3.0]])
    np.savez(tmp_path / "d.npz", train=np.ones((2, 3, 1)), clock=ts)
    table = Table(file="d.npz", observed=(0,), time="clock")
    np.testing.assert_array_equal([r.ts for r in read_table(table, tmp_path).train], ts)


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"observed": ("thta",)}, "observed", "did you mean `theta`?"),
        ({"v0": ("omeg",)}, "v0", "names 'omeg', which is not a column of"),
        ({"time": "time"}, "time", "is not a column of"),
        ({"recording": "swig"}, "recording", "did you mean `swing`?"),
        ({"train": ("c",)}, "train", "names 'c', which is not a recording; Known: a, b"),
        ({"train": (), "validation": ("a", "b")}, "validation", "must leave recordings to fit"),
        ({"columns": ("x",)}, "columns", "must be left out"),
        ({"file": "swings.txt"}, "file", "must be an .npz, .csv or .parquet file"),
    ],
)
def test_what_the_file_does_not_have(tmp_path, change, key, message) -> None:
    table = written(tmp_path)
    with pytest.raises(StudyError) as caught:
        read_table(Table(**{**vars(table), **change}), tmp_path)
    (problem,) = caught.value.problems
    assert problem.key == (key,)
    assert message in problem.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.28,", "0,28,", "csv:4: has 5 cells, but there are 4 columns"),
        ("0.28", "O.28", "csv:4: column `theta` must hold numbers, but holds 'O.28'"),
        ("0.28", "inf", "csv:4: column `theta` is infinite"),
        ("a,0.1", "a,0.0", "csv:4: the time `t` must increase, but 0.0 follows 0.0"),
        ("b,1.2", "b,", "csv:7: the time `t` is missing"),
        ("0.50", "", "csv:6: column `theta` is missing where b begins"),
        ("b,1.2,,nan\nb,1.3,0.44,-0.2\n", "", "csv:6: b has 1 samples, but needs at least two"),
        ("omega", "theta", "csv:2: column 'theta' appears twice"),
        ("swing,t,theta,omega\n", "", "csv:2: must name the columns, but holds numbers"),
    ],
)
def test_what_is_wrong_in_a_csv(tmp_path, old, new, message) -> None:
    table = written(tmp_path, SWINGS.replace(old, new, 1))
    with pytest.raises(TableError) as caught:
        read_table(table, tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


DEGREES = """\
t [ms],theta [deg],omega [rpm],torque (mN m),place (left)
0,90,0,200,1
100,45,-3,100,2
200,0,-6,0,3
"""


def _degrees(folder: Path, text: str = DEGREES, **change) -> Table:
    (folder / "d.csv").write_text(text)
    keys = {"observed": ("theta",), "v0": ("omega",), "time": "t", "inputs": {"u": "torque"}}
    return Table(file="d.csv", **(keys | change))


def test_units_in_the_names_of_columns_are_converted(tmp_path) -> None:
    (one,), _ = read_table(_degrees(tmp_path), tmp_path)
    np.testing.assert_allclose(one.ts, [0, 0.1, 0.2], rtol=1e-15)
    np.testing.assert_allclose(one.observed[:, 0], [np.pi / 2, np.pi / 4, 0], rtol=1e-15)
    np.testing.assert_allclose(one.v0[:, 0], [0, -np.pi / 10, -np.pi / 5], rtol=1e-15)
    np.testing.assert_allclose(one.inputs["u"].values, [0.2, 0.1, 0], rtol=1e-15)
    assert one.notes == (
        "t [ms] was converted to s", "theta [deg] was converted to rad",
        "omega [rpm] was converted to rad/s", "torque [mN m] was converted to N m",
    )  # fmt: skip
    in_full = _degrees(tmp_path, observed=("theta [deg]", "place (left)"), q0=("theta",))
    (same,), _ = read_table(in_full, tmp_path)
    np.testing.assert_allclose(same.observed[:, 0], one.observed[:, 0])
    np.testing.assert_array_equal(same.observed[:, 1], [1, 2, 3])


def test_units_of_the_table(tmp_path) -> None:
    plain = DEGREES.replace(" [ms]", "").replace(" [deg]", "").replace("[rpm]", "[bits]")
    with pytest.raises(StudyError, match=r"units.omega. must be a unit .* but is 'bits'"):
        read_table(_degrees(tmp_path, plain, units={"theta": "deg"}), tmp_path)
    units = {"theta": "deg", "t": "ms", "omega": ""}
    (one,), _ = read_table(_degrees(tmp_path, plain, units=units), tmp_path)
    np.testing.assert_allclose(one.ts, [0, 0.1, 0.2])
    np.testing.assert_allclose(one.observed[0], np.pi / 2)
    np.testing.assert_array_equal(one.v0[:, 0], [0, -3, -6])
    (raw,), _ = read_table(_degrees(tmp_path, units={"theta": ""}), tmp_path)
    np.testing.assert_array_equal(raw.observed[:, 0], [90, 45, 0])
    (si,), _ = read_table(_degrees(tmp_path, DEGREES.replace("deg", "rad")), tmp_path)
    np.testing.assert_array_equal(si.observed[:, 0], [90, 45, 0])
    assert not any("theta" in note for note in si.notes)


@pytest.mark.parametrize(
    ("unit", "size", "label"),
    [
        ("deg/s", np.pi / 180, "rad/s"), ("\u00b0/s", np.pi / 180, "rad/s"),
        ("rpm", np.pi / 30, "rad/s"), ("rev/min", np.pi / 30, "rad/s"), ("1/ms", 1e3, "1/s"),
        ("kg m^2", 1.0, "kg m^2"), ("mNm", 1e-3, "N m"), ("N\u00b7m", 1.0, "N m"),
        ("mm/s\u00b2", 1e-3, "m/s^2"), ("\u00b5s", 1e-6, "s"), ("min", 60.0, "s"),
        ("mm", 1e-3, "m"), ("cm^2", 1e-4, "m^2"),
    ],
)  # fmt: skip
def test_sizes_of_units(unit, size, label) -> None:
    value, name = si_unit(unit)
    assert value == pytest.approx(size, rel=1e-14)
    assert name == label
