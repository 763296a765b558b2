"""`jaxmech new` writes the files of a study."""

from pathlib import Path

import pytest

from jaxmech.cli.main import BAD_INPUT, DONE, main


def test_the_files_of_a_new_study(tmp_path: Path) -> None:
    """`tests/cli/test_main.py` runs it."""
    folder = tmp_path / "a swing"
    assert main(["new", str(folder)]) == DONE
    assert {file.name for file in folder.iterdir()} == {"README.md", "model.py", "study.toml"}
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("# a swing\n")


def test_a_folder_that_is_not_empty_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text("mine", encoding="utf-8")
    assert main(["new", str(tmp_path)]) == BAD_INPUT
    assert "exists already; give the name of a new folder" in capsys.readouterr().err
    assert (tmp_path / "model.py").read_text(encoding="utf-8") == "mine"
