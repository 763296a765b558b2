"""The page about a probability of failure."""

from pathlib import Path

import pytest

from jaxmech.cli.main import main
from jaxmech.ensemble import read_failure

CONFIG = """
model = "pendulum"
size = 64

[times]
end = 1.0
saves = 6

[start]
theta = { distribution = "normal", mean = 0.0, sd = 0.3 }

[failure]
of = "x1"
above = 0.9
method = "importance"
coefficient_of_variation = 0.2
"""


def test_the_page_and_the_pictures_are_made_from_the_folder_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = tmp_path / "swing.toml", tmp_path / "run"
    config.write_text(CONFIG)
    assert main(["failure", str(config), "--out", str(run)]) == 0
    printed, result = capsys.readouterr().out, read_failure(run)
    assert str(result) in printed
    first = (run / "report.html").read_text()
    assert first.count("data:image/gif") == len(result.design_points) == 2
    assert f"Reliability index {result.design_points[0].index:.3f}." in first
    assert "What would change it" in first
    assert main(["report", str(run), "--animate", "1", "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("data:image/gif") == 1
    tables = [text[text.index("<table") : text.rindex("</table")] for text in (first, page)]
    assert tables[0].count("<tr") == tables[1].count("<tr") > 3
    assert (run / "failure.txt").read_text().strip() == str(result)
    capsys.readouterr()
    for arguments, message in (
        (["report", str(run), "--animate", "2"], "--animate must name design points, of which"),
        (["ensemble", str(config), "--out", str(run)], "holds a run of `jaxmech failure`; choose"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    config.write_text(CONFIG.replace("0.9", "0.8"))
    assert main(["report", str(run), "--config", str(config)]) == 2
    assert "`failure.above` is 0.9 there and 0.8 here" in capsys.readouterr().err
    (run / "failure.json").unlink()
    assert main(["report", str(run)]) == 2
    assert "continue it with `jaxmech failure CONFIG --out" in capsys.readouterr().err
