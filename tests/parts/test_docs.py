"""The example in docs/parts.md prints the output on the page, which names every part."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from jaxmech import parts

PAGE = (Path(__file__).resolve().parents[2] / "docs/parts.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


@pytest.mark.slow
def test_the_example_prints_what_follows_it() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(blocks("python")[0], "docs/parts.md", "exec"), {})
    shown, said = printed.getvalue(), blocks("")[0]
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", said)
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(said), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(float(mine), float(theirs), rtol=1e-4, atol=2e-6)


def test_the_page_names_every_part() -> None:
    public = [name for name, part in vars(parts).items() if callable(part)]
    missing = [name for name in public if not re.search(rf"\b{name}\b", PAGE)]
    assert missing == []
