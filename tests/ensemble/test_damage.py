"""A block of which a file is missing or altered is not read, and computed again."""

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from jaxmech.config.errors import FolderError, RunWarning
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, open_results, run_study
from jaxmech.ensemble.blocks import compile_kernel
from jaxmech.ensemble.plan import origin
from tests.ensemble.studies import OBSERVED, same_results, write_study

SMALL = OBSERVED.replace("size = 20", "size = 11").replace("per_save = 8", "per_save = 1")
RUN = import_module("jaxmech.ensemble.run")


def once(make):
    kept = []

    def made(*args: object) -> object:
        if not kept:
            kept.append(make(*args))
        return kept[0]

    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run with its compiled program, shared by all cases."""
    config = write_study(tmp_path_factory.mktemp("whole"), SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RUN, "compile_kernel", once(compile_kernel))
        patch.setattr(RUN, "origin", once(origin))
        run_study(read(config, Study), config.parent / "run", folder=config.parent)
        yield config.parent / "run"


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def again(out: Path, whole: Path) -> None:
    run_study(read(whole.parent / "study.toml", Study), out, folder=whole.parent)


def flip(file: Path, byte: int = -9) -> None:
    data = bytearray(file.read_bytes())
    data[byte] ^= 4
    file.write_bytes(data)


Q, STATES = "results.zarr/q/c/1/0/0", "results.zarr/statistics/c/1/0"
DAMAGE = {
    "a bit of q": lambda out: flip(out / Q),
    "a bit of a status": lambda out: flip(out / "results.zarr/status/c/1"),
    "a bit of the states of statistics": lambda out: flip(out / STATES),
    "a chunk cut in half": lambda out: (out / Q).write_bytes((out / Q).read_bytes()[:20]),
    "a deleted chunk": lambda out: (out / Q).unlink(),
    "all chunks of an array deleted": lambda out: shutil.rmtree(out / "results.zarr/v/c"),
    "a garbled mark": lambda out: (out / "blocks/000001").write_text('{"block": [1]}'),
}


def used(out: Path) -> None:
    results = open_results(out)
    for name in ("q", "v", "status", "parameter_k"):
        results.all_of(name)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_block_is_not_read_and_computed_again(whole, copy, kind) -> None:
    DAMAGE[kind](copy)
    if "states" not in kind:  # which only runs read
        with pytest.raises(FolderError, match=r"is damaged: .*block .*1.* computes it again"):
            used(copy)
    with pytest.warns(RunWarning, match=r"was damaged; to be computed again: block .*1"):
        again(copy, whole)
    assert same_results(whole, copy)


@pytest.mark.parametrize("name", ["blocks/000001", "summary.json"])
def test_what_was_deleted_is_computed_again(whole, copy, name) -> None:
    file = copy / name
    shutil.rmtree(file) if file.is_dir() else file.unlink()
    again(copy, whole)
    assert same_results(whole, copy)


@pytest.mark.filterwarnings("ignore:.*was damaged; to be computed again")
@pytest.mark.parametrize("name", ["config.toml", "environment.json", "results.zarr/q"])
def test_a_run_without_its_configuration_or_an_array_is_refused(whole, copy, name) -> None:
    file = copy / name
    shutil.rmtree(file) if file.is_dir() else file.unlink()
    with pytest.raises(FolderError, match=Path(name).name):
        again(copy, whole)


@pytest.mark.slow
def test_damage_is_not_repaired_with_other_functions(whole, copy) -> None:
    (copy / Q).unlink()
    facts = json.loads((copy / "environment.json").read_text())
    assert set(facts["functions"]) == {"system", "observe last"}
    study = read(whole.parent / "study.toml", Study)
    with pytest.MonkeyPatch.context() as patch:
        changed = {**facts, "functions": {**facts["functions"], "system": "0"}}
        patch.setattr(RUN, "origin", lambda *args: changed)
        with (
            pytest.warns(RunWarning, match=r"was damaged; to be computed again: block 1"),
            pytest.raises(FolderError, match="the model differs in system"),
        ):
            run_study(study, copy, folder=whole.parent)
    assert (copy / "blocks" / "000001").exists()
