"""Random changes to configurations of fits and to CSV files are reported correctly."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.cli.fit_mutations import (
    CONFIGURATIONS,
    DEEPER,
    PLAIN,
    SWINGS,
    Case,
    tables,
    verdict,
    written,
)


@settings(max_examples=60)
@given(CONFIGURATIONS | tables())
def test_random_changes_are_accepted_or_refused_correctly(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert verdict(case, Path(folder)) == ""


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("data", "noise_sd", []),
        ("data", "noise_sd", [[0.1], [0.1, 0.2]]),
        ("data", "noise_sd", DEEPER),
        ("data", "observed", ["theta", "theta"]),
        ("multistart", "seed", -1),
        ("parameters", "prior", {"gravity": [25.0, 1.0]}),
        ("parameters", "start", {"gravity": {}}),
        ("parameters", "bounds", {"gravity": [0, 10**400]}),
    ],
)
def test_invalid_values_name_their_key(
    section: str, key: str, value: object, tmp_path: Path
) -> None:
    config = PLAIN | {section: PLAIN[section] | {key: value}}
    case = Case(written(config), SWINGS.encode(), f"{section}.{key}", value)
    assert verdict(case, tmp_path) == ""


def test_the_checker_detects_wrong_messages(tmp_path: Path) -> None:
    whole = Case(written(PLAIN), SWINGS.encode(), "data.noise_sd", 0.002)
    assert verdict(whole, tmp_path) == ""
    assert verdict(whole._replace(value=-1.0), tmp_path) == "is taken"
    wrong = written(PLAIN | {"initial_states": "loose"})
    assert "does not name data.noise_sd" in verdict(whole._replace(config=wrong), tmp_path)
    broken = whole._replace(table=b"swing,t,theta,omega\n1,0,x,0\n", changed="")
    assert verdict(broken, tmp_path) == ""


def test_lines_with_open_quotation_marks(tmp_path: Path) -> None:
    table = SWINGS.replace("1,0.0,", '"1,0.0,', 1).encode()
    assert verdict(Case(written(PLAIN), table, "", ""), tmp_path) == ""
