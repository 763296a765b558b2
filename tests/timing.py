"""The CPU seconds of the tests: of each folder at the end of every run, and of each test on demand.

    make pytest ARGS="--times 40"     # also the forty dearest tests and files

Wall time on a shared machine says little; CPU time does. A process that a test starts counts, and
what a file compiles counts for the first of its tests that needs it.
"""

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

spent: Counter[str] = Counter()  # CPU seconds by test


def used() -> float:
    """CPU seconds of this process, and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", type=int, default=0, help="list the dearest tests and files")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    """Each phase of a test says what it used; with xdist the report carries that to the end."""
    report = yield
    before = item.config.stash.get(BEFORE, 0.0)
    item.config.stash[BEFORE] = now = used()
    report.user_properties.append(("cpu", now - before))
    return report


BEFORE = pytest.StashKey[float]()


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[BEFORE] = used()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    spent[report.nodeid] += dict(report.user_properties).get("cpu", 0.0)  # type: ignore[call-overload]


def folder(test: str) -> str:
    path = Path(test.partition("::")[0])
    if path.parts[0] != "tests":
        return "examples in docstrings"
    return f"tests/{path.parts[1]}" if len(path.parts) > 2 else "tests/*.py"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for test, seconds in spent.items():
        folders[folder(test)] += seconds  # type: ignore[assignment]
        files[test.partition("::")[0]] += seconds  # type: ignore[assignment]
    write = terminalreporter.write_line
    terminalreporter.section(f"{sum(folders.values()):.0f} CPU s in {len(spent)} tests")
    write("  ".join(f"{name} {seconds:.0f}" for name, seconds in folders.most_common()))
    for kind in (files, spent) if config.option.times else ():
        write("")
        for name, seconds in kind.most_common(config.option.times):
            write(f"{seconds:6.1f} {name}")
