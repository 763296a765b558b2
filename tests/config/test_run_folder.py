"""Files of run folders: what a failure to write one says."""

from pathlib import Path

import pytest

from jaxmech.config.run_folder import model_name, write_whole


def test_a_file_that_cannot_be_written_is_named_not_its_draft(tmp_path: Path) -> None:
    file = tmp_path / "no folder" / "report.html"
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(file, "text")
    assert caught.value.filename == str(file)


def test_a_run_is_named_by_its_model_or_its_folder(tmp_path: Path) -> None:
    assert model_name({"model": "model.py:swing"}, tmp_path / "first") == "swing"
    assert model_name({"model": "model.py:system"}, tmp_path / "first") == "first"
