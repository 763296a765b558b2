"""The Python files that a configuration names, and those of run folders, which are not executed."""

from pathlib import Path

import pytest

from jaxmech.config.run_folder import FolderError, require_no_run_code
from jaxmech.config.toml import python_files


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
    require_no_run_code([own], tmp_path)
    require_no_run_code([], run)
    for file in (
        run / "model.py",
        run / "inner" / "model.py",
        tmp_path / "x" / ".." / "run" / "m.py",
    ):
        with pytest.raises(FolderError, match="copies and are not executed"):
            require_no_run_code([file], tmp_path)
    with pytest.raises(FolderError, match="name the configuration from which the run was made"):
        require_no_run_code([own], run)
