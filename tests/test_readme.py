"""The README is short, its figures are those of the benchmark, its commands and links exist."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_speeds_are_those_of_the_benchmark() -> None:
    """The speed table and the cost of gradients, written by `jaxmech bench --out docs/speed`."""
    page = (ROOT / "docs" / "speeds.md").read_text(encoding="utf-8")
    measured = (ROOT / "docs" / "speed" / "speed.md").read_text(encoding="utf-8")
    assert measured.split("\n\n")[1] in page  # below its title
    figures = json.loads((ROOT / "docs" / "speed" / "speed.json").read_text(encoding="utf-8"))
    reverse, five = [], []
    for case in figures["gradients"]:
        forward, *forms = [outcome["best"] for outcome in case["outcomes"].values()]
        reverse += [seconds / forward for seconds in forms[:2]]
        five += [forms[-1] / forward] if forms[-1] else []
    for runs in (reverse, five):
        assert f"{min(runs):.1f} to {max(runs):.1f} forward runs" in page.replace("\n", " ")


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) >= 8
    assert [link for link in links if not (ROOT / link).exists()] == []
