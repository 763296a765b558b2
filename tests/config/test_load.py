"""The files of a study: its model, those of run folders, which are not executed, and names."""

import os
import sys
from pathlib import Path

import pytest

from jaxmech.config.errors import FolderError
from jaxmech.config.load import load
from jaxmech.config.run_folder import RunFolder, require_no_run_code
from jaxmech.config.toml import python_files
from tests.ensemble.studies import write_study


def test_a_model_of_the_catalogue_takes_options() -> None:
    subject = load("chain", {"links": 4})
    assert subject.system.n == 8
    assert subject.model is not None
    assert subject.sha256 is None


def test_a_file_gives_a_system_or_a_function_of_one(tmp_path) -> None:
    write_study(tmp_path)
    assert load("spring.py:spring", {}, tmp_path).system.coordinates == ("x",)
    springs = load("spring.py:springs", {"count": 3}, tmp_path)
    assert springs.system.n == 3
    assert springs.model is None
    assert springs.sha256 is not None


def test_a_file_gives_a_model_and_imports_its_neighbours(tmp_path) -> None:
    (tmp_path / "beside.py").write_text("from jaxmech.models import pendulum\nmade = pendulum()\n")
    (tmp_path / "user.py").write_text("from beside import made\n")
    assert load("user.py:made", {}, tmp_path).model is not None


def test_a_file_that_was_changed_within_a_second_is_read_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "import jaxmech as jm\nmodel = jm.models.chain(links=LINKS)\n"
    for links in (2, 3):  # the same size and time, by which Python recognizes its bytecode
        (tmp_path / "user.py").write_text(text.replace("LINKS", str(links)))
        os.utime(tmp_path / "user.py", (1e9, 1e9))
        assert load("user.py:model", {}, tmp_path).system.n == 2 * links


def test_only_named_python_files_are_meant() -> None:
    data = {
        "model": "pendulum",
        "observe": {"y": "a/y.py:y", "z": {"function": "z.py:z"}},
        "series": [{"model": "y.py:y"}],
        "text": ["python:y", "no.py", "see y.py: it"],
    }
    found = python_files(data, Path("there"))
    assert found == [Path("there", name) for name in ("a/y.py", "z.py", "y.py")]


def test_python_files_of_a_run_folder_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "inner").mkdir(parents=True)
    (run / "environment.json").write_text("{}")
    own = tmp_path / "model.py"
    require_no_run_code(own, tmp_path)
    for file in (
        run / "model.py",
        run / "inner" / "model.py",
        tmp_path / "x" / ".." / "run" / "m.py",
    ):
        with pytest.raises(FolderError, match="copies and are not executed"):
            require_no_run_code(file, tmp_path)
    with pytest.raises(FolderError, match="name the configuration from which the run was made"):
        require_no_run_code(own, run)


def test_a_run_is_named_by_its_model_or_its_folder(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "first")
    run.path.mkdir()
    for name, shown in (("swing", "swing"), ("system", "first")):
        (run.path / "config.toml").write_text(f'model = "model.py:{name}"')
        assert run.model_name == shown
