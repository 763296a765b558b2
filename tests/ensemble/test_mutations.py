"""Mutated study configurations: valid ones are planned as written, others name their key."""

import contextlib
import io
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import assume, given, reject, settings

from jaxmech.cli.main import main
from jaxmech.config.errors import Problem, StudyError
from jaxmech.config.toml import ConfigError, read
from jaxmech.config.validate import plain, structure
from jaxmech.ensemble import Study
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.draws.plans import name_problems
from jaxmech.ensemble.draws.sampler import Variable
from jaxmech.ensemble.members.trajectory import save_times
from tests.ensemble.eventful_mutations import EVENTFUL, EVENTFUL_MUTATIONS
from tests.ensemble.mutations import BASE, MUTATIONS, Mutation, changed

HERE = Path(tempfile.gettempdir())  # nothing is written there
SECTIONS = ("start", "velocities", "parameters")


def verdict(case: Mutation, out: Any) -> str:
    """A description of the fault in the treatment of a mutation, empty if there is none."""
    try:
        study = structure(case.data, Study).resolved()
        found = planned(study, out)
        variables = found.sampler.rows(0, study.size)
    except StudyError as error:
        if case.good:
            return f"refused: {error}"
        if any(names(problem, case.key) for problem in error.problems):
            return ""
        return f"blames {[p.key for p in error.problems]}"
    if not case.good:
        return "accepted"
    return wrong_plan(study, case.data, variables)


def names(problem: Problem, key: tuple[str, ...]) -> bool:
    """Whether a problem concerns a key, a key inside of it, or it and another key."""
    blamed = tuple(part.partition("[")[0] for part in problem.key)  # `save` for `save[0]`
    key = tuple(part.partition("[")[0] for part in key)
    own = blamed[: len(key)] == key or key[: len(blamed)] == blamed
    return own or (problem.key[:-1] == key[:-1] and f"`{key[-1]}`" in problem.message)


def wrong_plan(study: Study, data: dict[str, Any], variables: tuple[Variable, ...]) -> str:
    """The first difference between a plan and its configuration."""
    size, times = data["size"], data["times"]
    ts = save_times(study)
    if len(ts) != times["saves"] or ts[0] != times["start"] or ts[-1] != times["end"]:
        return "other times"
    if (study.size, study.block_size) != (size, data["block"]):
        return "other sizes"
    found = {(v.section, v.name): v for v in variables}
    for section in SECTIONS:
        for name, rule in data[section].items():
            if not as_said(rule, found[section, name], size):
                return f"other draws of {section}.{name}"
    return ""


def as_said(rule: Any, variable: Variable, size: int) -> bool:
    values = np.asarray(variable.values, float)
    if not isinstance(rule, dict) or rule["distribution"] == "fixed":
        return bool(np.all(values == (rule["value"] if isinstance(rule, dict) else rule)))
    if values.shape != (size,) or not np.isfinite(values).all():
        return False
    match rule["distribution"]:
        case "uniform":
            return bool(np.all((rule["low"] <= values) & (values <= rule["high"])))
        case "normal":
            mean = rule.get("mean", 1.0)  # the defaults of the pendulum
            sd = rule["sd"] * (mean if rule.get("relative") else 1.0)
            return bool(np.all(np.abs(values - mean) <= 6 * sd))
        case _:
            return bool(np.all(values > 0))


@settings(max_examples=150)
@given(MUTATIONS)
def test_mutated_configurations(case: Mutation) -> None:
    assert verdict(case, HERE) == ""


@pytest.mark.slow
@settings(max_examples=200)
@given(MUTATIONS)
def test_many_mutated_configurations(case: Mutation) -> None:
    assert verdict(case, HERE) == ""


def eventful_verdict(case: Mutation) -> str:
    """As `verdict`, for a study with events, statistics, adaptive steps and a cluster."""
    try:
        study = planned(structure(case.data, Study), HERE).study
    except StudyError as error:
        right = any(names(problem, case.key) for problem in error.problems)
        return "" if right and not case.good else f"refused: {error}"
    if not case.good:
        return "accepted"
    found = at(plain(study), case.key)
    return "" if found == at(case.data, case.key) else f"is {found}"


def at(data: Any, key: tuple[str, ...]) -> Any:
    """The value of a key, that of a scheduler for a cluster given as a text."""
    for name in key:
        data = data[name]
    return data.get("scheduler", data) if isinstance(data, dict) else data


@pytest.mark.slow
@settings(max_examples=300)
@given(EVENTFUL_MUTATIONS)
def test_mutated_events_statistics_and_clusters(case: Mutation) -> None:
    assert eventful_verdict(case) == ""


@pytest.mark.slow
@settings(max_examples=20)
@given(EVENTFUL_MUTATIONS)
def test_commands_for_mutated_studies_end_in_time_without_a_traceback(case: Mutation) -> None:
    assume(case.key[-1] != "restitution")  # may name a parameter, looked up in the event
    data = {key: x for key, x in case.data.items() if key != "cluster" or case.key[0] == key}
    try:
        text = tomli_w.dumps(data)
    except (ValueError, TypeError):
        reject()  # not a value of TOML
    begun, shown = time.process_time(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(shown):
        config = Path(folder) / "study.toml"
        config.write_text(text)
        code = main(["ensemble", str(config), "--out", f"{folder}/run"])
    assert code in ((0, 1) if case.good and "cluster" not in data else (2,)), shown.getvalue()
    assert "Traceback" not in shown.getvalue()
    assert time.process_time() - begun < 60


@pytest.mark.parametrize(
    ("key", "value", "blamed", "message"),
    [
        (("times", "saves"), 10**12, "times.saves", "must be fewer: one trajectory with 1000000"),
        (
            ("size",),
            10**15,
            "size",
            "must be less: 1000000000000000 trajectories take",
        ),
        (("block",), 10**12, "block", "must be smaller: a block of 1000000000000 trajectories"),
        (("seed",), -1, "seed", "must be at least 0, but is -1"),
        (("steps", "per_save"), 10**12, "steps.per_save", "must be fewer: 4000000000000 steps"),
        (("parameters", "m"), math.nan, "parameters.m", "must be a finite number, a list of them"),
        (("parameters", "m"), [], "parameters.m", "must be a number or hold numbers, but is an"),
        (("velocities", "x1"), [[1.0, 2.0], [3.0]], "velocities.x1", "whose rows are equally long"),
        (("velocities", "x1"), [1.0], "velocities.x1", "must be a single number, but has shape"),
        (("parameters", "m"), 10**400, "parameters.m", "must be a finite number"),
        (
            ("events", "low", "keep"),
            10**10,
            "events.low.keep",
            "must be fewer: 10000000000 occ",
        ),
        (("events", "low", "keep"), 0, "events.low.keep", "must be at least 1, but is 0"),
        (("events", "low", "keep"), "x", "events.low.keep", 'must be an integer, but is "x"'),
        (("events", "low", "kep"), 1, "events.low.kep", "is not a known key; did you mean `keep`"),
        (("statistics", "bins", "bins"), 10**7, "statistics.bins.bins", "must be at most 100000"),
        (
            ("steps", "max_steps"),
            10**10,
            "steps.max_steps",
            "must be at most 1000000000, be",
        ),
        (("cluster",), "tcp://h:99999", "cluster.scheduler", "an address with a port up to 65535"),
    ],
)
def test_the_message_names_the_wrong_key(tmp_path, key, value, blamed, message) -> None:
    base = EVENTFUL if key[0] not in BASE or key[-1] == "max_steps" else BASE
    with pytest.raises(StudyError) as caught:
        planned(structure(changed(key, value, base), Study).resolved(), tmp_path)
    (problem,) = caught.value.problems
    assert ".".join(problem.key) == blamed
    assert problem.message.startswith(message) or message in problem.message


def test_beyond_the_free_disk_a_study_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "shutil.disk_usage", lambda place: type("Usage", (), {"free": 1000, "total": 2000})()
    )
    with pytest.raises(StudyError, match=r"`size` must be less: 6 trajectories take .* 1 kB are"):
        planned(structure(changed(("seed",), 1), Study).resolved(), tmp_path)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000 + "]" * 5000, "size = 1" + "0" * 5000])
def test_what_toml_cannot_hold_is_one_line(tmp_path, text) -> None:
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"deep\.toml: is nested too deeply, or holds a number"):
        read(tmp_path / "deep.toml", Study)


def test_unknown_names_are_reported_with_other_mistakes(tmp_path) -> None:
    config = tmp_path / "study.toml"
    text = 'model = "pendulum"\nsise = 4\n[times]\nend = -1\n[parameters]\nmm = 1\nm = "a"\n'
    config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read(config, Study, name_problems)
    lines = re.findall(r"study.toml:?(\d*): (\S+)", str(caught.value))
    assert lines == [
        ("2", "sise"),
        ("4", "times.end"),
        ("6", "parameters.mm"),
        ("7", "parameters.m"),
        ("", "size"),
    ]
    config.write_text(text.replace("pendulum", "pendulm"))
    with pytest.raises(
        ConfigError, match=r"did you mean `pendulum`\?(.|\n)*:2: sise is not a known key"
    ):
        read(config, Study, name_problems)
