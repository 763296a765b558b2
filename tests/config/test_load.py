"""Finding the system of a study: the catalogue, or a file of the user."""

import os
import re
import sys

import pytest

from jaxmech.config.errors import StudyError
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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pendulm", {}, "`model` is not a model of the catalogue; did you mean `pendulum`?"),
        ("chain", {"link": 3}, "`model_options.link` is not an option of chain; did you mean"),
        ("chain", {"links": 0}, "`model` cannot be made: ValueError: Argument `links` must"),
        ("missing.py:spring", {}, "`model` must name a Python file, but there is none at"),
        ("spring.py", {}, 'must be of the form "path/file.py:attribute", but is "spring.py"'),
        ("spring.py:", {}, "must be of the form"),
        ("spring.txt:spring", {}, "must be of the form"),
        ("spring.py:sprung", {}, "is not an attribute in .*spring.py; did you mean `spring"),
        (
            "spring.py:number",
            {},
            "must name a System, a Model, a Mechanism or a Robot, but",
        ),
        ("spring.py:spring", {"count": 2}, "`model_options` must be left out: spring is not"),
        ("spring.py:springs", {"n": 2}, "`model_options.n` is not an option of springs"),
        ("spring.py:springs", {"count": 0}, "cannot be made: ValueError: there must be a spring"),
        ("broken.py:spring", {}, "cannot be loaded: ZeroDivisionError: .*broken.py, line 2"),
        ("syntax.py:spring", {}, "cannot be loaded: SyntaxError: .*syntax.py, line 1"),
        ("exits.py:spring", {}, r"cannot be loaded: it ends the process.*exits.py, line 2\)"),
        ("exits.py:make", {}, r"cannot be loaded: it ends the process, by sys.exit"),
        ("later.py:make", {}, "cannot be made: it ends the process, by sys.exit"),
        ("lost.py:spring", {}, "cannot be loaded: ModuleNotFoundError: .*no_such_module"),
    ],
)
def test_what_does_not_load_is_refused(tmp_path, name: str, options: dict, message: str) -> None:
    write_study(tmp_path)
    (tmp_path / "broken.py").write_text("a = 1\nb = a / 0\n")
    (tmp_path / "syntax.py").write_text("def\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "later.py").write_text("def make():\n    exit()\n")
    (tmp_path / "lost.py").write_text("import no_such_module\n")
    with pytest.raises(StudyError, match=message.replace("?", r"\?")):
        load(name, options, tmp_path)


def test_the_known_models_are_listed() -> None:
    with pytest.raises(StudyError, match=re.escape("Known: andrews, ")):
        load("xyz", {})
