"""Running a study: bit-identical for all chunks, isolated failures, protected folders."""

import json
import re
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmech.config.errors import FolderError, RunWarning, StudyError
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, open_results, run_study
from jaxmech.ensemble.blocks import compile_kernel
from jaxmech.ensemble.plan import planned
from jaxmech.ensemble.store import StudyFolder
from jaxmech.ensemble.store import marked_blocks as finished_blocks
from jaxmech.status import Status
from tests.ensemble.studies import PENDULUM, STUDY, arrays, killed, same_bits, write_study


def computed(folder: Path, text: str = STUDY, out: str = "run", home: Path | None = None) -> Path:
    config = write_study(home or folder, text)
    run_study(read(config, Study), folder / out, folder=config.parent)
    return folder / out


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A finished run of the small study."""
    return computed(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def begun(whole, tmp_path) -> Path:
    """A copy of the finished run that lacks its last three blocks, as if it had been killed."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    shutil.copy(whole.parent / "spring.py", tmp_path)
    killed(out, 2, 3, 4)
    shutil.rmtree(out / "results.zarr" / "q" / "c" / "4")
    (out / "results.zarr" / "q" / "c" / "3" / "0" / "0").write_bytes(b"half a file")
    (out / "results.zarr" / "q" / "c" / "2" / "0" / "0.1234.partial").write_bytes(b"a draft")
    return out


def test_the_motion_is_that_of_the_spring(whole) -> None:
    found = arrays(whole)
    frequency = np.sqrt(found["parameter_k"] / found["parameter_m"])
    exact = found["coordinate_x"][:, None] * np.cos(frequency[:, None] * found["t"])
    assert np.abs(found["q"][..., 0] - exact).max() < 1e-4
    assert np.array_equal(found["status"], np.zeros(20))
    assert np.all(np.isnan(found["t_failed"]))


@pytest.mark.slow
def test_an_interrupted_run_continues_to_the_same_bits(whole, begun) -> None:
    computed(begun.parent)
    assert finished_blocks(begun) == [0, 1, 2, 3, 4]
    assert same_bits(whole, begun)
    for name in ("summary.json", "summary.txt"):
        assert (whole / name).read_text() == (begun / name).read_text()


def test_a_finished_run_is_left_alone(whole) -> None:
    before = {p: p.stat().st_mtime_ns for p in (whole / "results.zarr").rglob("*")}
    computed(whole.parent)
    assert before == {p: p.stat().st_mtime_ns for p in (whole / "results.zarr").rglob("*")}


def test_a_creation_that_was_interrupted_begins_again(whole, tmp_path) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    (out / "config.toml").unlink()
    shutil.rmtree(out / "blocks")
    shutil.rmtree(out / "results.zarr" / "q")
    assert same_bits(computed(tmp_path), whole)


def test_failed_members_do_not_affect_the_others(whole, tmp_path) -> None:
    bad = arrays(computed(tmp_path, STUDY.replace("limit = 2.0", "limit = 0.7")))
    good = arrays(whole)
    failed = good["parameter_kick"] > 0.7
    assert 0 < failed.sum() < 20
    assert np.array_equal(bad["status"], np.where(failed, Status.NONFINITE, Status.OK))
    assert np.array_equal(np.isfinite(bad["t_failed"]), failed)
    for name in ("q", "v", "energy"):
        assert bad[name][~failed].tobytes() == good[name][~failed].tobytes()
        assert np.all(np.isnan(bad[name][failed, -1]))


def test_the_last_block_is_filled_with_copies(tmp_path) -> None:
    study = read(write_study(tmp_path, STUDY.replace("size = 20", "size = 18")), Study)
    inputs = compile_kernel(planned(study, tmp_path)).inputs(4)
    last = inputs.varying["coordinates"]["x"]
    assert int(inputs.count) == 2
    assert last.shape == (4,)
    assert np.all(last[1:] == last[1])


@pytest.mark.slow
def test_everything_can_be_saved(tmp_path) -> None:
    text = PENDULUM.replace(
        "block = 8", 'block = 8\nsave = ["q", "v", "qdd", "multipliers", "constraint_force"]'
    )
    config = write_study(tmp_path, text)
    run_study(read(config, Study), tmp_path / "run")
    found = arrays(tmp_path / "run")
    assert found["multipliers_rod"].shape == (10, 6, 1)
    m, g = float(found["parameter_m"]), float(found["parameter_g"])
    weight = np.array([0.0, -m * g])
    assert np.abs(m * found["qdd"] - weight - found["constraint_force"]).max() < 1e-9
    assert "energy" not in found
    assert not list((tmp_path / "run").glob("**/energy"))


def test_drawn_states_are_made_consistent(tmp_path) -> None:
    text = PENDULUM.replace("[start]", "[velocities]\nx1 = 0.3\n\n[start]")
    text = text.replace("block = 8", 'block = 8\nfixed = ["x1"]')
    config = write_study(tmp_path, text)
    summary = run_study(read(config, Study), tmp_path / "run")
    assert summary["status"]["OK"]["count"] == 10
    found = arrays(tmp_path / "run")
    assert found["v"][:, 0, 0] == pytest.approx(0.3)
    assert np.abs(np.sum(found["q"] * found["v"], axis=-1)).max() < 1e-12


def test_the_run_folder_repeats_the_run(whole, tmp_path) -> None:
    study = read(whole / "config.toml", Study)
    assert (study.model, study.block) == ("model.py:spring", 4)
    # Python files of a run folder are copies, which are executed nowhere but outside of it.
    shutil.copy(whole / "model.py", tmp_path)
    run_study(study, tmp_path / "again", folder=tmp_path)
    assert same_bits(whole, tmp_path / "again")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("size = 20", "size = 24", "`size` is 20 there and 24 here"),
        ("end = 1.0", "end = 2.0", r"`times.end` is 1.0 there and 2.0 here"),
        ("m = 1.0\n", "m  =  1\n", None),
        ("limit = 2.0", "limit = 2.0\n[velocities]\nx = 1.0", "`velocities.x` is not given there"),
        ("spring.py:spring", "spring.py:springs", "coordinates.x"),
    ],
)
def test_a_folder_of_another_study_is_refused(begun, old, new, message) -> None:
    text = STUDY.replace(old, new)
    if message is None:
        computed(begun.parent, text)
        return
    with pytest.raises((FolderError, StudyError), match=message):
        computed(begun.parent, text)


EDITED = [
    ('    return 0.5 * p["m"] * v @ v', '    # heavy\n    return 0.5 * p["m"] * v @ v', None),
    ('return 0.5 * p["m"] * v @ v', 'return p["m"] * v @ v', "differs in system"),
    ("1e9 * (1 + q**4)", "2e9 * (1 + q**4)", "the model differs in system"),
]


@pytest.mark.parametrize(
    ("old", "new", "message", "finished"),
    [(*EDITED[0], False), (*EDITED[1], True), (*EDITED[2], False)],
)
def test_functions_that_were_edited_are_refused(whole, begun, old, new, message, finished) -> None:
    out = begun
    if finished:
        shutil.rmtree(begun)
        shutil.copytree(whole, begun)
    config = write_study(begun.parent)
    file = begun.parent / "spring.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    if message is None:
        run_study(read(config, Study), out, folder=begun.parent)
        assert same_bits(whole, out)
        return
    with pytest.raises(FolderError, match=message):
        run_study(read(config, Study), out, folder=begun.parent)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_an_edited_import_is_refused_and_a_moved_folder_is_not(whole, tmp_path) -> None:
    """The text of the model file stays; the module that it imports decides the force."""
    config = write_study(tmp_path / "a")
    file = tmp_path / "a" / "spring.py"
    file.write_text(file.read_text().replace("1e9 *", "strength() *") + "from how import strength")
    (tmp_path / "a" / "how.py").write_text("def strength():\n    return 1e9\n")
    out = tmp_path / "a" / "run"
    run_study(read(config, Study), out, folder=config.parent)
    assert same_bits(whole, out)
    (tmp_path / "a").rename(tmp_path / "b")
    config, out = tmp_path / "b" / config.name, tmp_path / "b" / "run"
    del sys.modules["how"]
    run_study(read(config, Study), out, folder=config.parent)
    (tmp_path / "b" / "how.py").write_text("def strength():\n    return 3e9  # edited\n")
    del sys.modules["how"]
    with pytest.raises(FolderError, match="the model differs in system"):
        run_study(read(config, Study), out, folder=config.parent)


def test_other_defaults_and_draws_are_refused(tmp_path) -> None:
    config = write_study(tmp_path, PENDULUM.replace("pendulum", "spring.py:swing"))
    file = tmp_path / "spring.py"
    text = file.read_text() + SWING
    file.write_text(text)
    run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    file.write_text(text.replace('{"m": 1.0, ', '{"m": 1.5, '))
    with pytest.raises(FolderError, match=r"different values are drawn for parameter_m\."):
        run_study(read(config, Study), tmp_path / "run", folder=tmp_path)
    file.write_text(text.replace('p["l"] * jnp.sin', '2 * p["l"] * jnp.sin'))
    with pytest.raises(FolderError, match="differs in start"):
        run_study(read(config, Study), tmp_path / "run", folder=tmp_path)


SWING = """

rod = jm.Holonomic(lambda q, t, p: q @ q - p["l"] ** 2, "rod")
swing = jm.models.Model(
    "swing", "a mass on a rod", jm.System(lagrangian, [rod], coordinates=("x", "y")),
    {"m": 1.0, "k": 2.0, "l": 1.0}, {"theta": 1.0},
    lambda start, p: (jnp.stack([
        p["l"] * jnp.sin(start["theta"]), p["l"] * jnp.cos(start["theta"])
    ]), jnp.zeros(2)),
)
"""


def with_fact(run: Path, **facts: object) -> None:
    file = run / "environment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **facts}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ({"jax": "0.0.1"}, f'jax is "0.0.1" there and "{jax.__version__}" here'),
        ({"jaxmech_sha256": "0"}, "the source files of jaxmech differ"),
    ],
)
def test_another_environment_is_refused(begun, fact, told) -> None:
    with_fact(begun, **fact)
    with pytest.raises(FolderError, match=f"{re.escape(told)}.*choose another folder with --out"):
        computed(begun.parent)


def test_a_finished_run_of_other_versions_is_shown_with_a_warning(whole, tmp_path) -> None:
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    with_fact(out, jax="0.0.1", functions={"lagrangian": "as that jax traced it"})
    with pytest.warns(RunWarning, match='is shown as stored, although jax is "0.0.1" there'):
        computed(tmp_path)
    assert same_bits(whole, out)
    with_fact(out, model_sha256="0")
    with pytest.raises(FolderError, match="the model file has changed"):
        computed(tmp_path)


def test_files_that_do_not_belong_to_a_run_are_kept(tmp_path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderError, match="holds files but no run; choose another folder"):
        computed(tmp_path)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "years of work"
    assert len(list((tmp_path / "run").iterdir())) == 1


def test_two_processes_do_not_share_a_folder(begun) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (begun / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(FolderError, match="is being written by another process"):
            computed(begun.parent)


def test_an_unfinished_run_can_be_read(begun, whole) -> None:
    results = open_results(begun)
    assert results.blocks == (0, 1)
    assert len(results.status) == 8
    q = open_results(whole).good("q")
    assert np.array_equal(results.good("q"), q[:8])
    assert np.array_equal(open_results(whole).good("q", limit=3), q[:3])


def test_the_status_of_a_block_is_written_last(monkeypatch, tmp_path) -> None:
    written: list[str] = []

    def array(self: StudyFolder, name: str) -> np.ndarray:
        written.append(name)
        return np.zeros(4)

    monkeypatch.setattr(StudyFolder, "_array", array)
    (tmp_path / "results.zarr").mkdir()
    values = np.ones(4)
    StudyFolder(tmp_path, 4, 4).write(0, {"status": values, "q": values, "t_failed": values})
    assert written == ["q", "t_failed", "status"]
