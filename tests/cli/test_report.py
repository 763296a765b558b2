"""The page about a run: complete, escaped, nothing loaded, and safe for run folders of others."""

import base64
import io
import json
import pickle
import re
import shlex
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from PIL import Image

from jaxmech.cli.main import main
from jaxmech.cli.report import write_report
from jaxmech.config.errors import FolderError, InputError
from jaxmech.ensemble import replay
from jaxmech.ensemble.store import open as open_dataset
from tests.ensemble.studies import OBSERVED, PENDULUM, STUDY, arrays, computed, killed

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """The elements of a page: its texts, images, tables, and whether they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.images: list[tuple[str, bytes]] = []
        self.loaded: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.wrong += self.open

    def handle_starttag(self, tag, attrs) -> None:
        given = dict(attrs)
        for key in ("src", "href", "data", "action"):
            address = given.get(key)
            if address and not address.startswith("data:"):
                self.loaded.append(address)
        if tag == "img":
            kind, _, data = given["src"].partition(";base64,")
            self.images.append((kind, base64.b64decode(data)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def bad(tmp_path_factory) -> Path:
    """A run with failures, in a folder with a name that must be escaped."""
    folder = tmp_path_factory.mktemp("bad") / "<b> & 'x'"
    folder.mkdir()
    text = (
        STUDY.replace("limit = 2.0", "limit = 0.7")
        + """
[statistics]
x = { statistic = "moments", of = "x" }
band = { statistic = "quantiles", of = "x", at = [0.1, 0.9], bins = 64 }
motion = { statistic = "moments", of = "q" }
pairs = { statistic = "histogram", of = "integration_error" }
"""
    )
    return computed(folder, text)


@pytest.fixture(scope="module")
def page(bad) -> Page:
    return Page(write_report(bad).read_text("utf-8"))


def test_the_page_is_complete_and_loads_nothing(page) -> None:
    assert page.wrong == []
    assert page.loaded == []
    assert not [text for text in page.texts["style"] if "url(" in text or "@import" in text]
    assert "script" not in page.texts


def test_its_content_policy_forbids_loading(bad) -> None:
    text = (bad / "report.html").read_text("utf-8")
    (policy,) = re.findall(r'Content-Security-Policy"\s+content="([^"]*)"', text)
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_the_page_begins_with_the_answers(bad, page) -> None:
    titles = page.texts["h2"]
    assert titles[:3] == ["x at t = 1 s", "integration_error", "Motions"]
    assert page.texts["summary"] == ["Numbers", "Trust", "Configuration", "Environment"]
    with np.load(bad / "statistics.npz") as stored:
        mean, low, high = (stored[f"x/mean{end}"][-1] for end in ("", "_low", "_high"))
        largest, number = stored["x/max"][-1], stored["x/max_index"][-1]
    (answer,) = [
        text for text in page.texts["p"] if text.startswith("The mean of x at t = 1 s is ")
    ]
    numbers = [float(x) for x in re.findall(r"-?\d+\.\d+", answer)]
    np.testing.assert_allclose(numbers[:3], (mean, low, high), atol=0.05 * (high - low))
    assert answer.endswith(f"The largest value is {largest:.4g}, of member {number}.")
    failed = np.count_nonzero(arrays(bad)["status"])
    assert f"{failed} of 20 members failed" in " ".join(page.texts["article"])


def test_every_picture_has_a_sentence(page) -> None:
    captions = page.texts["figcaption"]
    assert len(captions) == len(page.images) >= 6
    assert all(caption.endswith(".") for caption in captions)
    assert {kind for kind, _ in page.images} == {"data:image/svg+xml"}
    assert captions[0] == "The distribution of x at t = 1 s over the members."
    assert "Histogram of integration_error." in captions


def test_a_study_of_statistics_draws_from_them(tmp_path) -> None:
    text = (
        STUDY
        + """
[statistics]
spread = { statistic = "histogram", of = "x" }
band = { statistic = "quantiles", of = "x", bins = 64 }
"""
    )
    text = text.replace("size = 20", 'size = 20\nstore = "statistics"')
    found = Page(write_report(computed(tmp_path, text)).read_text("utf-8"))
    captions = found.texts["figcaption"]
    assert captions[-1] == "Quantiles of x."
    assert len(captions) == len(found.images)


def test_every_failure_has_its_command(bad, page) -> None:
    failed = np.flatnonzero(arrays(bad)["status"])
    commands = page.texts["code"]
    assert len(commands) == len(failed) > 0
    assert [int(shlex.split(text)[3]) for text in commands] == failed.tolist()
    assert commands[0].endswith(" --config CONFIG")
    assert shlex.split(commands[0])[:3] == ["jaxmech", "replay", str(bad)]


def test_the_numbers_are_those_of_the_summary(bad, page) -> None:
    assert (bad / "summary.txt").read_text() == page.texts["pre"][0]


@pytest.mark.slow
def test_trajectories_move(tmp_path, capsys) -> None:
    run = computed(tmp_path, PENDULUM)
    assert main(["report", str(run), "--out", str(tmp_path / "p.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "p.html")
    found = Page((tmp_path / "p.html").read_text("utf-8"))
    motions = [data for kind, data in found.images if kind == "data:image/gif"]
    assert 0 < len(motions) <= 8
    assert Image.open(io.BytesIO(motions[0])).n_frames > 5
    assert any(re.search(r", member \d+\.", text) for text in found.texts["figcaption"])
    with pytest.raises(InputError, match="99 is not one of them"):
        replay(run, 99)


def test_an_unfinished_run_is_reported_as_such(bad, tmp_path) -> None:
    out = tmp_path / "run"
    shutil.copytree(bad, out)
    for file in ("summary.json", "summary.txt", "statistics.npz"):
        (out / file).unlink()
    killed(out, 3, 4)
    found = Page(write_report(out).read_text("utf-8"))
    (lead,) = [text for text in found.texts["p"] if "trajectories" in text]
    assert lead.startswith("12 of 20 trajectories")
    assert lead.endswith("the run is not finished.")
    killed(out, 0, 1, 2)
    with pytest.raises(FolderError, match="no finished block yet"):
        write_report(out)


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
