"""Recordings from files: what is read, and one message for each thing that is wrong."""

from pathlib import Path

import numpy as np
import pytest

from jaxmech.config.errors import StudyError
from jaxmech.config.frames import TableError
from jaxmech.identify.table import Table, read_table
from jaxmech.utils.units import si_unit

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
