"""`jaxmech new`: the study that it writes runs as it is."""

from pathlib import Path

import pytest

from jaxmech.cli.main import BAD_INPUT, DONE, main


def test_a_new_study_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a swing"
    assert main(["new", str(folder)]) == DONE
    assert {file.name for file in folder.iterdir()} == {"README.md", "model.py", "study.toml"}
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("# a swing\n")
    assert f"cd '{folder}' &&" in capsys.readouterr().out
    monkeypatch.chdir(folder)
    config = Path("study.toml")
    text = config.read_text(encoding="utf-8").replace("size = 1000 ", "size = 16 ")
    config.write_text(text, encoding="utf-8")
    assert main(["ensemble", "study.toml", "--out", "runs/first"]) == DONE
    assert "beyond" in capsys.readouterr().out


def test_a_folder_that_is_not_empty_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text("mine", encoding="utf-8")
    assert main(["new", str(tmp_path)]) == BAD_INPUT
    assert "exists already; give the name of a new folder" in capsys.readouterr().err
    assert (tmp_path / "model.py").read_text(encoding="utf-8") == "mine"
