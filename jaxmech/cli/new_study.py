"""`jaxmech new`: a new folder with a study that runs, and a page that explains it."""

from importlib.resources import files
from pathlib import Path

from jaxmech.config.errors import InputError

TEMPLATE = files("jaxmech.cli") / "template"


def write_study(folder: Path) -> list[Path]:
    """Write the files of a study into a new folder and return them.

    Raises:
        InputError: if the folder exists and is not empty.
        OSError: if the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already; give the name of a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in TEMPLATE.iterdir():
        text = source.read_text(encoding="utf-8").replace("{name}", folder.resolve().name)
        target = folder / source.name.removesuffix(".txt")  # model.py.txt is no module of ours
        target.write_text(text, encoding="utf-8")
        written.append(target)
    return sorted(written)
