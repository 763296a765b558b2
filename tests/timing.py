"""CPU seconds of every test, and a table of the slowest.

    make pytest ARGS="-p tests.timing"      # appends to test_times.txt, children included
    .venv/bin/python -m tests.timing        # the slowest thirty, and twenty files

Wall time on a shared machine says little; CPU time does. `TEST_TIMES` names another file.
"""

import ast
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

FILE = Path(os.environ.get("TEST_TIMES", "test_times.txt"))


def used() -> float:
    """CPU seconds of this process, and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with its fixtures; those of a file count for its first test."""
    before = used()
    result = yield
    with FILE.open("a") as file:
        file.write(f"{used() - before:.1f}\t{item.nodeid}\n")
    return result


def purpose(test: str) -> str:
    """The first line of the docstring of a test."""
    path, _, name = test.partition("::")
    name = name.partition("[")[0]
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name.split(".")[-1]:
            return "the example" if "." in name else (ast.get_docstring(node) or "").split("\n")[0]
    return ""


def report(lines: list[str]) -> str:
    """Tables of tests and of files, in Markdown."""
    times = {test: float(seconds) for seconds, test in (line.split("\t") for line in lines)}
    files: Counter[str] = Counter()
    for test, seconds in times.items():
        files[test.partition("::")[0]] += seconds  # type: ignore[assignment]
    slowest = sorted(times, key=lambda test: -times[test])[:30]
    return "\n".join(
        [
            f"{len(times)} tests, {sum(times.values()):,.0f} CPU s",
            "\n| CPU s | test | what it checks |\n|---:|---|---|",
            *(f"| {times[test]:.0f} | `{test}` | {purpose(test)} |" for test in slowest),
            "\n| CPU s | file |\n|---:|---|",
            *(f"| {seconds:.0f} | `{file}` |" for file, seconds in files.most_common(20)),
        ]
    )


if __name__ == "__main__":
    print(report(FILE.read_text().splitlines()))
