"""The JSON Schema with which editors complete and check the keys of configurations."""

import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from experiments.fit_evaluation import FitEvaluation
from experiments.recovery.study import Recovery
from experiments.singular_pose import SingularPose
from experiments.speed.settings import Speed
from jaxmech.cli.fit.study import FitStudy
from jaxmech.cli.main import main
from jaxmech.cli.parser import FILES, described_by
from jaxmech.config.validate import json_schema
from jaxmech.ensemble import DISTRIBUTIONS, Study

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.toml"))
EXPERIMENTS: dict[str, type] = {
    "fit_evaluation": FitEvaluation,
    "recovery": Recovery,
    "singular_pose": SingularPose,
    "speed": Speed,
    "speed_quick": Speed,
}


def kind_of(path: Path, data: dict[str, Any]) -> type:
    if path.stem in EXPERIMENTS:
        return EXPERIMENTS[path.stem]
    if "data" in data:
        return FitStudy
    return Study


def mistakes(data: Any, kind: type) -> list[str]:
    """The paths at which data do not agree with the schema."""
    found = jsonschema.Draft202012Validator(json_schema(kind)).iter_errors(data)
    return sorted(error.json_path for error in found)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_configurations_of_the_project_agree_with_their_schema(path: Path) -> None:
    data = tomllib.loads(path.read_text("utf-8"))
    kind = kind_of(path, data)
    assert mistakes(data, kind) == []
    assert mistakes({**data, "sise": 1}, kind) == ["$"]


STUDY: dict[str, Any] = {"model": "pendulum", "size": 4, "times": {"end": 1}}


@pytest.mark.parametrize(
    ("section", "value", "is_valid"),
    [
        ("size", 0, False),
        ("size", 1.5, False),
        ("precision", "float32", True),
        ("precision", "double", False),
        ("projection", {"name": "baumgarte", "alpha": 5, "beta": 5}, True),
        ("projection", {"name": "baumgarte", "alpha": 5}, False),
        ("projection", {"name": "bamgarte"}, False),
        ("cluster", "local:2", True),
        ("cluster", {"scheduler": "local:2", "worker": 1}, False),
        ("parameters", {"l": 1.0}, True),
        ("parameters", {"l": [1.0, 2.0]}, True),
        ("parameters", {"l": {"distribution": "uniform", "low": 0, "high": 1}}, True),
        ("parameters", {"l": {"distribution": "uniform", "low": 0}}, False),
        ("parameters", {"l": {"distribution": "gamma", "a": 2.0}}, True),
        ("parameters", {"l": "long"}, False),
        ("observe", {"y": "file.py:y"}, True),
        ("observe", {"y": {"function": "file.py:y", "keep": "biggest"}}, False),
        ("until", {"quantity": "y", "half_width": 0.1, "confidence": 1.5}, False),
    ],
)
def test_a_mistake_is_one_in_the_schema(section: str, value: Any, is_valid: bool) -> None:
    assert mistakes({**STUDY, section: value}, Study) == ([] if is_valid else expected(section))


def expected(section: str) -> list[str]:
    inner = {"parameters": ".l", "observe": ".y", "until": ".confidence"}
    return [f"$.{section}{inner.get(section, '')}"]


@pytest.mark.parametrize("file", FILES)
def test_the_command_prints_every_key_with_its_description(capsys, file: str) -> None:
    assert main(["schema", file]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(printed)
    described = {name: entry["description"] for name, entry in printed["properties"].items()}
    assert described == {f.name: f.metadata["description"] for f in fields(described_by(file))}


def test_an_editor_is_told_names_and_defaults() -> None:
    schema = json_schema(Study)
    tables = schema["$defs"].values()
    names = {entry["properties"].get("distribution", {}).get("const") for entry in tables}
    assert names > DISTRIBUTIONS.keys()
    assert schema["properties"]["seed"]["default"] == 0
    assert "null" not in json.dumps(schema)  # TOML has none
