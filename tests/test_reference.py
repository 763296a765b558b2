"""The reference of the documentation has every public name, and each of them an example."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
BLOCK = re.compile(r"currentmodule:: (\S+)\n.*?\n\n((?:   \w+\n)+)", re.DOTALL)
# Namespaces whose names are all public; `integrate` and `compiler` also hold the inside.
PUBLIC = (
    "analysis",
    "control",
    "ensemble",
    "errors",
    "identify",
    "laws",
    "models",
    "parts",
    "plot",
)
WITHOUT_EXAMPLE = ("errors", "models")  # classes of errors; models that all look alike


def entries() -> list[tuple[str, str]]:
    """Module and name of each entry of the reference."""
    pages = sorted(REFERENCE.glob("*.md"))
    blocks = [block for page in pages for block in BLOCK.findall(page.read_text("utf-8"))]
    return [(module, name) for module, names in blocks for name in names.split()]


def public(module: str) -> dict[str, Any]:
    space = importlib.import_module(module)
    names = getattr(space, "__all__", [name for name in dir(space) if not name.startswith("_")])
    found = {name: getattr(space, name) for name in names}
    return {name: x for name, x in found.items() if inspect.isclass(x) or inspect.isfunction(x)}


def test_the_reference_has_every_public_name() -> None:
    shown = {id(getattr(importlib.import_module(module), name)) for module, name in entries()}
    for module in ("jaxmech", *(f"jaxmech.{name}" for name in PUBLIC)):
        assert [name for name, x in public(module).items() if id(x) not in shown] == []


def test_an_entry_stands_once() -> None:
    names = entries()
    assert len(names) > 200
    assert len(set(names)) == len(names)


def has_example(subject: Any) -> bool:
    return ">>> " in (inspect.getdoc(subject) or "")


@pytest.mark.parametrize(("module", "name"), entries())
def test_an_entry_has_an_example(module: str, name: str) -> None:
    """A result may name the function that returns it, in whose example it is seen."""
    subject = getattr(importlib.import_module(module), name)
    if has_example(subject) or module.endswith(WITHOUT_EXAMPLE):
        return
    assert inspect.isclass(subject)
    mentioned = set(re.findall(r"`([\w.]+)", inspect.getdoc(subject) or ""))
    known = {name: getattr(importlib.import_module(module), name) for module, name in entries()}
    assert any(has_example(known[name]) for name in mentioned & known.keys())
