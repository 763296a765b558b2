"""Configuration files: strict, every message with its key and line."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from jaxmech import FixedSteps
from jaxmech.cli.fit import FitStudy, model
from jaxmech.config import plain
from jaxmech.config.errors import ConfigError
from jaxmech.config.load import load
from jaxmech.config.toml import POLICIES, key_descriptions, key_lines, read, structure
from jaxmech.ensemble import (
    Fixed,
    Normal,
    Study,
    Uniform,
)
from jaxmech.ensemble.distributions import DISTRIBUTIONS
from jaxmech.ensemble.draws import Sampler
from jaxmech.integrate import RK4, AbstractSteps
from jaxmech.linalg import AbstractSolver
from jaxmech.state import AbstractStabilization, Baumgarte, Free, Projection

ROOT = Path(__file__).resolve().parents[2]
GOOD = """\
# a study
model = "chain"
size = 100
save = ["q", "energy"]

[model_options]
links = 3

[times]
end = 10
saves = 11

[method]
name = "RK4"

[projection]
name = "baumgarte"
alpha = 5
beta = 5.0

[start]
"theta[0]" = { distribution = "uniform", low = -1, high = 1.0 }

[parameters.m]
distribution = "normal"
sd = 0.02
relative = true

[parameters]
g = 1.62
l = [1.0, 2.0, 3.0]
"""


@pytest.fixture
def refused(tmp_path):
    """`refused(text)` returns the message with which a configuration is refused."""

    def message(text: str) -> str:
        file = tmp_path / "study.toml"
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read(file, Study)
        return str(caught.value).replace(str(file), "FILE")

    return message


def test_a_configuration_is_a_study(tmp_path) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    study = read(tmp_path / "good.toml", Study)
    assert study.times.end == 10.0
    assert isinstance(study.times.end, float)
    assert study.save == ("q", "energy")
    assert study.method == RK4()
    assert study.projection == Baumgarte(alpha=5.0, beta=5.0)
    assert study.start == {"theta[0]": Uniform(-1.0, 1.0)}
    assert study.parameters["m"] == Normal(sd=0.02, relative=True)
    assert study.parameters["g"] == Fixed(1.62)
    assert study.parameters["l"] == Fixed([1.0, 2.0, 3.0])


def test_a_study_survives_conversion_to_plain_data(tmp_path) -> None:
    (tmp_path / "good.toml").write_text(GOOD)
    study = read(tmp_path / "good.toml", Study)
    assert structure(plain(study), Study) == study
    free = structure({**plain(study), "projection": {"name": "none"}}, Study)
    assert free.projection == Free()
    assert (
        structure({"model": "a", "size": 1, "times": {"end": 1}}, Study).projection == Projection()
    )


def test_keys_that_a_policy_leaves_out_have_defaults() -> None:
    assert structure({"per_save": 3}, AbstractSteps) == FixedSteps(per_save=3)
    assert structure({"name": "none"}, AbstractStabilization) == Free()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("size = 100", "sizes = 100", "FILE:3: sizes is not a known key; did you mean `size`"),
        ("size = 100", "", "FILE: size must be given, but is missing"),
        ("size = 100", "size = 0", "FILE:3: size must be at least 1, but is 0"),
        ("size = 100", "size = 1e3", "FILE:3: size must be an integer, but is 1000.0"),
        ("size = 100", "size = 1\nsize = 2", "FILE:4: is not TOML: Cannot overwrite a value"),
        ("size = 100", "size = 1\nfailed_allowed = 2", "FILE:4: failed_allowed must be a"),
        ('["q", "energy"]', '["q", "heat"]', 'FILE:4: save[1] must be "q", "v"'),
        ("links = 3", "links = 3\n[times.more]", "FILE:8: times.more is not a known key"),
        ("end = 10", "end = -1", "FILE:10: times.end must be after `start`, but -1.0 is not"),
        ('"RK4"', '"euler"', "FILE:14: method.name is not a known name; Known: Dormand"),
        ('name = "baumgarte"', "", "FILE:16: projection must be a table with `name`, one of"),
        ("alpha = 5", "alpha = -5", "FILE:18: projection.alpha must be finite and not negative"),
        ('"uniform"', '"unifrom"', "is not a distribution of scipy.stats"),
        ("low = -1,", "low = 2,", "FILE:22: start.theta[0].low must be below `high` and both"),
        ("g = 1.62", "g = [1.0, true]", "FILE:30: parameters.g must be finite, a number or"),
    ],
)
def test_wrong_configurations_have_their_message(refused, old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert message in refused(GOOD.replace(old, new, 1))


def test_all_problems_are_reported_at_once(refused) -> None:
    lines = refused(GOOD.replace("size = 100", "seed = 1.5").replace("end = 10", "ende = 10"))
    assert [line.split(": ")[1].split()[0] for line in lines.splitlines()] == [
        "seed",
        "times.end",
        "times.ende",
        "size",
    ]


def test_lines_of_keys_are_found() -> None:
    lines = key_lines('a.b = 1\n\n[ "x y" . z ]  # here\n  "m[3]" = 2\n\'q\' = {low = 1}\n')
    assert lines == {
        ("a",): 1,
        ("a", "b"): 1,
        ("x y",): 3,
        ("x y", "z"): 3,
        ("x y", "z", "m[3]"): 4,
        ("x y", "z", "q"): 5,
    }


def every_key(kind: type) -> set[str]:
    keys = {field.name for field in fields(kind)}
    nested = [f.default for f in fields(kind) if is_dataclass(f.default)]
    deeper = [value for value in nested if not isinstance(value, AbstractSolver)]
    return keys.union(*(every_key(type(value)) for value in deeper)) if deeper else keys


def test_the_help_names_every_key_and_every_choice() -> None:
    text = key_descriptions(Study)
    assert all(f" {key} " in key_descriptions(FitStudy) for key in ("observed", "bounds", "rate"))
    policies = {name: kind for choice in POLICIES.values() for name, kind in choice.kinds.items()}
    tables = (kind for kind in policies.values() if not issubclass(kind, AbstractSolver))
    for kind in (Study, *DISTRIBUTIONS.values(), *tables):
        for key in every_key(kind):
            assert f" {key} " in text or re.search(rf"[\[.]{key}\]", text), key
    for name in (*DISTRIBUTIONS, *policies):
        assert f'"{name}"' in text


FILES = sorted((ROOT / "configs").glob("*.toml"))
FITS = [path for path in FILES if "\n[data]" in path.read_text()]
STUDIES = [path for path in FILES if "\nmodel = " in path.read_text() and path not in FITS]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_studies_of_the_project_are_valid(path: Path) -> None:
    study = read(path, Study)
    subject = load(study.model, study.model_options, path.parent)
    assert any(variable.varies for variable in Sampler(study, subject).rows(0, 1))


@pytest.mark.parametrize("path", FITS, ids=lambda path: path.stem)
def test_the_fits_of_the_project_are_valid(path: Path) -> None:
    study = read(path, FitStudy)
    assert model(study, path.parent).params
