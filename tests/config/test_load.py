"""Finding the system of a study: the catalogue, or a file of the user."""

import os
import sys

from jaxmech.config.load import load
from tests.ensemble.studies import write_study


def test_a_model_of_the_catalogue_takes_options() -> None:
    subject = load("chain", {"links": 4})
    assert subject.system.n == 8
    assert subject.model is not None
    assert subject.source is None


def test_a_file_gives_a_system_or_a_function_of_one(tmp_path) -> None:
    write_study(tmp_path)
    assert load("spring.py:spring", {}, tmp_path).system.coordinates == ("x",)
    springs = load("spring.py:springs", {"count": 3}, tmp_path)
    assert springs.system.n == 3
    assert springs.model is None
    assert springs.sha256 is not None


def test_a_file_gives_a_model_and_imports_its_neighbours(tmp_path) -> None:
    (tmp_path / "beside.py").write_text("from jaxmech.models import pendulum\nmade = pendulum()\n")
    (tmp_path / "user.py").write_text("from beside import made\n")
    assert load("user.py:made", {}, tmp_path).model is not None


def test_a_file_that_was_changed_within_a_second_is_read_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "import jaxmech as jm\nmodel = jm.models.chain(links=LINKS)\n"
    for links in (2, 3):  # the same size and time, by which Python recognizes its bytecode
        (tmp_path / "user.py").write_text(text.replace("LINKS", str(links)))
        os.utime(tmp_path / "user.py", (1e9, 1e9))
        assert load("user.py:model", {}, tmp_path).system.n == 2 * links
