"""Run folders from somebody else: reading them executes and unpickles nothing."""

import json
import pickle
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from jaxmech.cli.main import main
from jaxmech.cli.report import write_report
from jaxmech.config.errors import InputError
from jaxmech.config.run_folder import FolderError
from jaxmech.ensemble import replay
from jaxmech.ensemble.store import open as open_dataset
from tests.cli.report.test_page import Page
from tests.ensemble.studies import OBSERVED, computed, killed

BAD = "<script>alert(1)</script>"


class Bomb:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self) -> tuple:
        return Path.touch, (Path(self.file),)


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Path:
    return computed(tmp_path_factory.mktemp("own"), OBSERVED)


@pytest.fixture
def strange(own: Path, tmp_path: Path) -> Path:
    """The run as an archive of somebody else: its code makes a file when it is executed."""
    run = tmp_path / "strange"
    shutil.copytree(own, run)
    for name in ("model.py", "spring.py"):
        if (run / name).is_file():
            bomb = f"import pathlib\npathlib.Path({str(tmp_path / 'executed')!r}).touch()\n"
            (run / name).write_text(bomb + (run / name).read_text())
    return run


def test_reading_executes_nothing(strange: Path, own: Path, tmp_path: Path, capsys) -> None:
    assert main(["report", str(strange)]) == 0
    assert open_dataset(strange).sizes["trajectory"] == 20
    assert not (tmp_path / "executed").exists()
    said = capsys.readouterr().err
    assert "the page has no animation: the configuration of" in said
    assert "names model.py, whose copies" in said
    assert main(["report", str(strange), "--animate", "1"]) == 2
    assert not (tmp_path / "executed").exists()


def test_replaying_executes_the_files_of_the_named_configuration(strange, own, tmp_path) -> None:
    config = own.parent / "study.toml"
    assert main(["replay", str(strange), "1"]) == 2
    assert main(["replay", str(strange), "1", "--config", str(strange / "config.toml")]) == 2
    with pytest.raises(InputError, match=r"names model\.py"):
        replay(strange, 1)
    assert main(["replay", str(strange), "1", "--config", str(config)]) == 0
    assert not (tmp_path / "executed").exists()


def test_a_configuration_in_a_run_folder_executes_nothing(strange, tmp_path, capsys) -> None:
    killed(strange, 1)
    command = ["ensemble", str(strange / "config.toml"), "--out", str(strange)]
    for out in (strange, tmp_path / "elsewhere"):
        command[-1] = str(out)
        assert main(command) == 2
        assert "whose Python files are copies and are not executed" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_stored_objects_are_not_unpickled(strange: Path, own: Path, tmp_path: Path) -> None:
    bomb = np.array([Bomb(tmp_path / "unpickled")], object)
    np.savez(strange / "statistics.npz", **{"x/mean": bomb})
    array = strange / "results.zarr" / "t"
    shutil.rmtree(array)
    (array / "c").mkdir(parents=True)
    v2 = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "order": "C"}
    v2 |= {"compressor": None, "fill_value": None, "filters": [{"id": "pickle", "protocol": 4}]}
    (array / ".zarray").write_text(json.dumps(v2))
    (array / "0").write_bytes(pickle.dumps(Bomb(tmp_path / "unpickled")))
    assert main(["report", str(strange)]) in (0, 2)
    with pytest.raises((FolderError, KeyError, ValueError, UserWarning)):
        open_dataset(strange)
    assert not (tmp_path / "unpickled").exists()


def test_every_name_is_escaped(strange: Path) -> None:
    config = tomllib.loads((strange / "config.toml").read_text())
    config["model"] = f"model.py:{BAD}"
    (strange / "config.toml").write_text(tomli_w.dumps(config))
    summary = json.loads((strange / "summary.json").read_text())
    summary["status"]["OK"]["message"] = BAD
    summary["worst"][BAD] = 1.0
    summary["quantiles"]["coordinates"] = {BAD: [[0.0] * 5]}
    (strange / "summary.json").write_text(json.dumps(summary))
    facts = json.loads((strange / "environment.json").read_text())
    (strange / "environment.json").write_text(json.dumps({**facts, BAD: BAD, "device": BAD}))
    arrays = dict(np.load(strange / "statistics.npz"))
    np.savez(strange / "statistics.npz", **arrays, **{f"{BAD}/mean": np.array(1.0)})
    page = Page(write_report(strange).read_text("utf-8"))
    assert "script" not in page.texts
    assert page.wrong == []
    assert page.loaded == []
