"""The programs of `examples/` run as they stand, and check themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


def test_the_site_shows_every_example() -> None:
    shown = (FOLDER.parent / "docs" / "examples" / "index.md").read_text(encoding="utf-8")
    assert EXAMPLES
    assert [name for name in EXAMPLES if f"\n{name}\n" not in shown] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)  # with the files that examples read
    environment = os.environ | {"MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, f"{name}.py"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
