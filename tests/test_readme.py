"""The README's example prints the output shown there, and its commands and links exist."""

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ROUND_OFF = 1e-12  # printed numbers below this are only compared in size


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def test_the_example_prints_what_follows_it() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(blocks("python")[0], "README.md", "exec"), {})
    said, shown = blocks("")[0].split("\n"), printed.getvalue().split("\n")
    assert [NUMBER.sub("#", line) for line in shown] == [NUMBER.sub("#", line) for line in said]
    numbers = (NUMBER.findall("\n".join(lines)) for lines in (shown, said))
    for mine, theirs in zip(*numbers, strict=True):
        if "e" not in theirs:  # with as many decimals
            assert len(mine.partition(".")[2]) == len(theirs.partition(".")[2])
        if abs(float(theirs)) < ROUND_OFF:
            assert abs(float(mine)) < ROUND_OFF
        elif "e" in theirs:  # errors, whose estimates depend on rounding, and so on the processor
            assert 0.5 < float(mine) / float(theirs) < 2
        else:
            np.testing.assert_allclose(float(mine), float(theirs), rtol=1e-2, atol=2e-6)


def test_the_speeds_are_those_of_the_benchmark() -> None:
    """The speed table and the cost of gradients, written by `jaxmech bench --out docs/speed`."""
    measured = (ROOT / "docs" / "speed" / "speed.md").read_text(encoding="utf-8")
    assert measured.split("\n\n")[1] in README  # below its title
    figures = json.loads((ROOT / "docs" / "speed" / "speed.json").read_text(encoding="utf-8"))
    reverse, five = [], []
    for case in figures["gradients"]:
        forward, *forms = [outcome["best"] for outcome in case["outcomes"].values()]
        reverse += [seconds / forward for seconds in forms[:2]]
        five += [forms[-1] / forward] if forms[-1] else []
    for runs in (reverse, five):
        assert f"{min(runs):.1f} to {max(runs):.1f} forward runs" in README.replace("\n", " ")


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, re.MULTILINE))
def test_the_targets_of_make_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) >= 8
    assert [link for link in links if not (ROOT / link).exists()] == []
