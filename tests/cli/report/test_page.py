"""The page about a run: complete, escaped, and without anything to be loaded."""

import base64
import io
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxmech.cli.main import main
from jaxmech.cli.report import write_report
from jaxmech.config.run_folder import FolderError
from tests.ensemble.studies import PENDULUM, STUDY, arrays, computed, killed

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
    assert main(["report", str(run), "--animate", "3", "--out", str(tmp_path / "p.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "p.html")
    found = Page((tmp_path / "p.html").read_text("utf-8"))
    (motion,) = [data for kind, data in found.images if kind == "data:image/gif"]
    assert Image.open(io.BytesIO(motion)).n_frames > 5
    assert "Member 3." in found.texts["figcaption"]
    write_report(run, tmp_path / "still.html", animated=[])
    still = Page((tmp_path / "still.html").read_text("utf-8"))
    assert not [kind for kind, _ in still.images if kind == "data:image/gif"]
    assert main(["report", str(run), "--animate", "99"]) == 2
    assert "99 is not one of them" in capsys.readouterr().err


def test_an_unfinished_run_is_reported_as_such(bad, tmp_path) -> None:
    out = tmp_path / "run"
    shutil.copytree(bad, out)
    for file in ("summary.json", "summary.txt", "statistics.npz"):
        (out / file).unlink()
    killed(out, 3, 4)
    found = Page(write_report(out, animated=[]).read_text("utf-8"))
    (lead,) = [text for text in found.texts["p"] if "trajectories" in text]
    assert lead.startswith("12 of 20 trajectories")
    assert lead.endswith("the run is not finished.")
    killed(out, 0, 1, 2)
    with pytest.raises(FolderError, match="no finished block yet"):
        write_report(out)
