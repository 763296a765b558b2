"""The programs of `examples/` run as they stand, and check themselves."""

import runpy
import shutil
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))


def test_the_site_shows_every_example() -> None:
    shown = (FOLDER.parent / "docs" / "examples" / "index.md").read_text(encoding="utf-8")
    assert EXAMPLES
    assert [name for name in EXAMPLES if f"\n{name}\n" not in shown] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)  # with the files that examples read
    monkeypatch.chdir(tmp_path)
    with jax.numpy_rank_promotion("allow"), plt.rc_context():
        runpy.run_path(str(tmp_path / f"{name}.py"), run_name="__main__")
    plt.close("all")
    assert capsys.readouterr().out
