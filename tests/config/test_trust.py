"""Whose Python files are executed: owners, and the code by which a run folder is known again."""

import os
from pathlib import Path

import pytest

from jaxmech.config.run_folder import FolderError
from jaxmech.config.trust import (
    WRITTEN_HERE,
    is_foreign,
    is_written_here,
    mark_written_here,
    python_files,
    require_trusted,
)

NOBODY = 65534
needs_root = pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away"
)


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "jaxmech" / "key"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "results.zarr").mkdir(parents=True)
    (folder / "config.toml").write_text('model = "model.py:arm"\n')
    (folder / "model.py").write_text("arm = 1\n")
    mark_written_here(folder)
    return folder


def test_only_named_python_files_are_meant() -> None:
    data = {
        "model": "pendulum",
        "observe": {"y": "a/y.py:y", "z": {"function": "z.py:z"}},
        "candidates": [{"model": "y.py:y"}],
        "text": ["python:y", "no.py", "see y.py: it"],
    }
    found = python_files(data, Path("there"))
    assert found == [Path("there", name) for name in ("a/y.py", "z.py", "y.py")]


def test_own_files_are_executed(run: Path, key: Path) -> None:
    assert is_written_here(run)
    require_trusted([run], [run / "model.py"], trust=False)
    assert key.stat().st_mode & 0o077 == 0
    assert len(key.read_bytes()) == 32


@pytest.mark.parametrize("name", ["model.py", "config.toml", "numpy.py", "json/__init__.py"])
def test_files_that_came_or_changed_are_not(run: Path, name: str) -> None:
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("changed = 1\n")
    assert not is_written_here(run)
    with pytest.raises(FolderError, match=r"execute .*model\.py, but the Python files in .* were"):
        require_trusted([run], [run / "model.py"], trust=False)
    require_trusted([run], [run / "model.py"], trust=True)


def test_results_and_pictures_may_change(run: Path) -> None:
    (run / "results.zarr" / "0").write_bytes(b"1")
    (run / "summary.txt").write_text("1")
    assert is_written_here(run)


def test_another_key_or_none_is_not_this_user(run: Path, key: Path) -> None:
    code = (run / WRITTEN_HERE).read_text()
    key.unlink()
    assert not is_written_here(run)
    mark_written_here(run)  # with a new key
    assert (run / WRITTEN_HERE).read_text() != code
    key.chmod(0o644)  # others could have read it
    assert not is_written_here(run)


def test_code_outside_of_a_run_needs_no_mark(run: Path, tmp_path: Path) -> None:
    """A study that is continued is that of the user; the folder then holds data only."""
    (run / WRITTEN_HERE).unlink()
    (tmp_path / "mine.py").write_text("arm = 1\n")
    require_trusted([run], [tmp_path / "mine.py"], trust=False)
    with pytest.raises(FolderError, match="--trust"):
        require_trusted([run], [run / "model.py"], trust=False)


@needs_root
@pytest.mark.parametrize("name", ["", "model.py"])
def test_what_belongs_to_another_user_is_not_executed(run: Path, name: str) -> None:
    assert not is_foreign(run / name)
    os.chown(run / name, NOBODY, NOBODY)
    assert is_foreign(run / name)
    with pytest.raises(FolderError, match="belongs to another user"):
        require_trusted([run], [run / "model.py"], trust=False)


def test_a_folder_for_the_key_that_cannot_be_made_does_no_harm(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    mark_written_here(run)
    assert not is_written_here(run)
