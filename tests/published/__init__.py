"""Figures of published motions and closed forms, each file with its sources."""

import tomllib
from pathlib import Path
from typing import Any


def published(name: str) -> dict[str, Any]:
    """`published("andrews")` is the content of andrews.toml."""
    path = Path(__file__).parent / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
