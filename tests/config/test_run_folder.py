"""Files of run folders: what a failure to write one says."""

from pathlib import Path

from jaxmech.config.run_folder import model_name


def test_a_run_is_named_by_its_model_or_its_folder(tmp_path: Path) -> None:
    assert model_name({"model": "model.py:swing"}, tmp_path / "first") == "swing"
    assert model_name({"model": "model.py:system"}, tmp_path / "first") == "first"
