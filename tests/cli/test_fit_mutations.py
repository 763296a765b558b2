"""Random changes to configurations of fits and to CSV files are reported correctly."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.fit_mutations import (
    DEEPER,
    PLAIN,
    SWINGS,
    Case,
    configurations,
    tables,
    verdict,
    written,
)

SEED, COUNT = 14, 60


@pytest.mark.parametrize("made", [configurations, tables])
def test_random_changes_are_accepted_or_refused_correctly(
    made: Callable[[int, int], Iterator[Case]], tmp_path: Path
) -> None:
    said = [(case, verdict(case, tmp_path)) for case in made(COUNT, SEED)]
    assert len(said) == COUNT
    assert [(case.changed, case.value, text) for case, text in said if text] == []


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
