"""Damage to a run folder is reported before any result is used, and repaired if possible."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from jaxmech.cli.main import main
from jaxmech.config.run_folder import FolderError
from jaxmech.config.toml import read
from jaxmech.ensemble import RunWarning, Study, open_results, run_study, verify
from jaxmech.ensemble.blocks.kernel import compile_kernel
from jaxmech.ensemble.finished.summary import summarize
from jaxmech.ensemble.store.folder import origin
from jaxmech.plot.ensemble_figures import draw_pictures
from tests.ensemble.studies import STUDY, killed, same_bits, write_study

SMALL = STUDY.replace("size = 20", "size = 11").replace("per_save = 8", "per_save = 1")
RUN = import_module("jaxmech.ensemble.run")
HERE = import_module("jaxmech.ensemble.blocks.local")


def once(make: Callable[..., object]) -> Callable[..., object]:
    kept: list[object] = []

    def made(*args: object) -> object:
        if not kept:
            kept.append(make(*args))
        return kept[0]

    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run with its compiled program, shared by all cases."""
    config = write_study(tmp_path_factory.mktemp("whole"), SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RUN, "compile_kernel", once(compile_kernel))
        patch.setattr(RUN, "origin", once(origin))
        run_study(read(config, Study), config.parent / "run", folder=config.parent)
        yield config.parent / "run"


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def again(out: Path, whole: Path) -> None:
    config = whole.parent / "study.toml"
    run_study(read(config, Study), out, folder=config.parent)


def chunk(array: str, block: int = 1) -> str:
    places = {"t": "0", "q": f"{block}/0/0", "v": f"{block}/0/0", "energy": f"{block}/0"}
    return f"results.zarr/{array}/c/{places.get(array, block)}"


def flipped(file: str, byte: int = -9) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        data = bytearray((out / file).read_bytes())
        data[byte] ^= 4
        (out / file).write_bytes(data)

    return damage


def deleted(file: str) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        path = out / file
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


def cut(file: str, share: float) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        data = (out / file).read_bytes()
        (out / file).write_bytes(data[: int(share * len(data))])

    return damage


def written(file: str, text: str) -> Callable[[Path], object]:
    return lambda out: (out / file).write_text(text)


def edited(file: str, old: str, new: str) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        text = (out / file).read_text()
        assert old in text
        (out / file).write_text(text.replace(old, new, 1))

    return damage


def copied(source: str, target: str) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        (out / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(out / source, out / target)

    return damage


def swapped(first: str, second: str) -> Callable[[Path], object]:
    def damage(out: Path) -> None:
        one, other = (out / first).read_bytes(), (out / second).read_bytes()
        assert one != other
        (out / first).write_bytes(other)
        (out / second).write_bytes(one)

    return damage


# What is done to the folder, and the file that must be named.
HEALED = {
    "a bit of q": (flipped(chunk("q")), chunk("q")),
    "a bit of v": (flipped(chunk("v")), chunk("v")),
    "a bit of energy": (flipped(chunk("energy")), chunk("energy")),
    "a bit of a status": (flipped(chunk("status")), chunk("status")),
    "a bit of a rank": (flipped(chunk("rank")), chunk("rank")),
    "a bit of a drawn parameter": (flipped(chunk("parameter_k", 0)), "parameter_k/c/0"),
    "a bit of a fixed parameter": (flipped("results.zarr/parameter_m/c"), "parameter_m/c"),
    "a bit of a drawn start": (flipped(chunk("coordinate_x", 0)), "coordinate_x/c/0"),
    "a bit of the times": (flipped(chunk("t")), "t/c/0"),
    "a bit of the names": (flipped(chunk("coordinate", 0)), "coordinate/c/0"),
    "a bit of the checksum": (flipped(chunk("q"), -1), chunk("q")),
    "two chunks swapped": (swapped(chunk("q", 0), chunk("q", 1)), chunk("q", 0)),
    "chunks of two arrays swapped": (swapped(chunk("q"), chunk("v")), chunk("q")),
    "a deleted chunk": (deleted(chunk("q")), f"{chunk('q')} is missing"),
    "a deleted chunk of draws": (deleted(chunk("parameter_k", 0)), "parameter_k/c/0 is missing"),
    "a chunk cut in half": (cut(chunk("v"), 0.5), chunk("v")),
    "an emptied chunk": (cut(chunk("v"), 0.0), chunk("v")),
    "a chunk where none belongs": (
        copied(chunk("rank"), chunk("t_failed")),
        f"{chunk('t_failed')} does not belong there",
    ),
    "a deleted array": (deleted("results.zarr/v"), "results.zarr/v/zarr.json is missing"),
    "all results deleted": (deleted("results.zarr"), "results.zarr/coordinate/c/0 is missing"),
    "the description of an array deleted": (deleted("results.zarr/q/zarr.json"), "q/zarr.json"),
    "the description of all deleted": (deleted("results.zarr/zarr.json"), "zarr/zarr.json"),
    "the description of an array edited": (
        edited("results.zarr/q/zarr.json", '"float64"', '"float32"'),
        "q/zarr.json was changed",
    ),
    "a unit edited": (edited("results.zarr/energy/zarr.json", '"J"', '"K"'), "energy/zarr.json"),
    "the description of all garbled": (cut("results.zarr/zarr.json", 0.4), "zarr/zarr.json"),
    "a deleted mark": (deleted("blocks/000001"), "blocks/000001 is missing"),
    "all marks deleted": (deleted("blocks"), "blocks/000000 is missing"),
    "an emptied mark": (written("blocks/000001", ""), "blocks/000001 is damaged"),
    "a garbled mark": (written("blocks/000001", '{"block": [1]}'), "blocks/000001 is"),
    "the mark of another block": (
        copied("blocks/000002", "blocks/000001"),
        "blocks/000001 is the mark of block 2",
    ),
    "an edited mark": (edited("blocks/000001", 'q/c/1/0/0": "', 'q/c/1/0/0": "0'), "was changed"),
    "the configuration edited": (edited("config.toml", "seed = 3", "seed = 4"), "config.toml"),
    "the configuration deleted": (deleted("config.toml"), "config.toml is missing"),
    "the copy of the model edited": (edited("model.py", "0.5", "0.6"), "model.py was changed"),
    "the summary edited": (edited("summary.json", '"done": 11', '"done": 12'), "summary.json"),
    "the summary deleted": (deleted("summary.txt"), "summary.txt is missing"),
}
REFUSED = {
    "the environment edited": (edited("environment.json", '"x64": true', '"x64": false'), "enviro"),
    "the environment deleted": (deleted("environment.json"), "environment.json is missing"),
    "the seal deleted": (deleted("seal.json"), "without seal.json"),
    "the seal garbled": (cut("seal.json", 0.5), "seal.json is damaged"),
    "a seal of another kind": (written("seal.json", "[]"), "seal.json is damaged"),
    "a seal of another format": (edited("seal.json", '"format": 2', '"format": 9'), "format 9"),
    "a digest edited": (edited("seal.json", 'config.toml": "', 'config.toml": "0'), "config.toml"),
    "results that are a file": (
        lambda out: (shutil.rmtree(out / "results.zarr"), (out / "results.zarr").touch()),
        "results.zarr",
    ),
}


def used(out: Path) -> None:
    """Read all arrays of a block."""
    results = open_results(out)
    summarize(results)
    for name in ("q", "v", "energy", "rank", "t_failed", "parameter_k", "coordinate_x"):
        results.good(name)


def named_before_use(out: Path, name: str) -> None:
    """Check that a damaged run is neither summarized nor drawn, and `verify` names the file."""
    with pytest.raises(FolderError, match=r"damaged|without|format|cannot be") as caught:
        used(out)
    assert name in str(caught.value) or "more" in str(caught.value)
    unseen = {"rank", "t_failed", "parameter_k", "coordinate_x"}  # which no picture shows
    if not unseen.intersection(name.split("/")):
        with pytest.raises(FolderError):
            draw_pictures(open_results(out))
    try:
        found = "\n".join(map(str, verify(out)))
    except FolderError as error:
        found = str(error)
    assert name in found


@pytest.mark.parametrize("kind", HEALED)
def test_damage_is_named_and_healed(whole, copy, kind) -> None:
    damage, name = HEALED[kind]
    damage(copy)
    named_before_use(copy, name)
    with pytest.warns(RunWarning, match="was damaged") as caught:
        again(copy, whole)
    told = " ".join(str(one.message) for one in caught)
    assert name in told or " more" in told
    assert verify(copy) == ()
    assert same_bits(whole, copy)
    for text in ("config.toml", "summary.json", "summary.txt", "seal.json", "model.py"):
        assert (copy / text).read_bytes() == (whole / text).read_bytes()


@pytest.mark.parametrize("kind", REFUSED)
def test_damage_that_cannot_be_repaired_is_refused(whole, copy, kind) -> None:
    damage, name = REFUSED[kind]
    damage(copy)
    named_before_use(copy, name)
    with pytest.raises(FolderError, match=r"in another folder|cannot be used") as caught:
        again(copy, whole)
    assert name in str(caught.value) or "cannot be used" in str(caught.value)


def test_an_undamaged_run_is_accepted(whole, copy) -> None:
    assert verify(copy) == ()
    again(copy, whole)
    killed(copy, 1, 2)
    assert verify(copy) == ()


def test_verify_names_everything_and_changes_nothing(copy) -> None:
    flipped(chunk("q"))(copy)
    deleted("blocks/000002")(copy)
    before = {p: p.read_bytes() for p in copy.rglob("*") if p.is_file()}
    assert list(map(str, verify(copy))) == [
        "blocks/000002 is missing",
        "results.zarr/q/c/1/0/0 was changed",
    ]
    assert {p: p.read_bytes() for p in copy.rglob("*") if p.is_file()} == before


def test_damage_is_reported_on_the_command_line(whole, copy, capsys) -> None:
    config = str(whole.parent / "study.toml")
    flipped(chunk("q"))(copy)
    assert main(["report", str(copy)]) == 2
    assert f"{copy} is damaged: {chunk('q')} was changed" in capsys.readouterr().err
    assert main(["ensemble", config, "--out", str(copy)]) == 0
    shown = capsys.readouterr()
    assert shown.err == (
        f"jaxmech: {copy} was damaged: {chunk('q')} was changed; to be recomputed: block 1\n"
    )
    assert same_bits(whole, copy)


def test_pictures_that_cannot_be_written_are_one_line(whole, copy, capsys, monkeypatch) -> None:
    """A full disk and a folder that cannot be written: exit code 2, for 1 means failures."""
    before = sorted((whole / "pictures").glob("*")) if (whole / "pictures").exists() else []

    def full(self, file, **options) -> None:
        Path(file).write_bytes(b"half a picture")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", full)
        assert main(["ensemble", str(whole.parent / "study.toml"), "--out", str(copy)]) == 2
    place = f"jaxmech: pictures cannot be written to {copy / 'pictures'}: "
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert all(line.startswith(f"{place}No space left on device; the results") for line in lines)
    assert list((copy / "pictures").iterdir()) == before == []
    (copy / "pictures").rmdir()
    (copy / "pictures").touch()
    assert main(["ensemble", str(whole.parent / "study.toml"), "--out", str(copy)]) == 2
    assert capsys.readouterr().err.startswith(f"{place}File exists")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, as Linux has it")
@pytest.mark.parametrize("command", ["models", "replay"])
def test_an_output_that_is_full_is_one_line(whole, copy, capsys, monkeypatch, command) -> None:
    config = str(whole.parent / "study.toml")
    arguments = [str(copy), "0", "--config", config] if command == "replay" else []
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main([command, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jaxmech: the standard output cannot be read or written: No space left")
    assert error.count("\n") == 1


def test_the_cost_of_large_studies_is_reported(whole, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(RUN, "LARGE", 1)
    monkeypatch.setattr(HERE, "LONG", 0.0)
    told: list[str] = []
    study = read(whole.parent / "study.toml", Study)
    run_study(study, tmp_path / "run", folder=whole.parent, tell=told.append)
    assert told[0].startswith("11 trajectories take up to 3.")
    assert re.fullmatch(r"about \S+ (s|ms|min) for the other 1 of 3 blocks", told[1])
    run_study(study, tmp_path / "run", folder=whole.parent, tell=told.append)
    assert len(told) == 2


def test_a_folder_without_digests_is_reported_as_old(whole, copy) -> None:
    (copy / "seal.json").unlink()
    for mark in (copy / "blocks").iterdir():
        mark.write_text("")
    with pytest.raises(FolderError, match="it was written by an older jaxmech"):
        again(copy, whole)
    assert same_bits(whole, copy)


def test_damage_is_not_repaired_with_other_functions(whole, copy) -> None:
    flipped(chunk("q"))(copy)
    facts = json.loads((copy / "environment.json").read_text())
    assert set(facts["functions"]) == {"coordinates", "lagrangian", "force"}
    study = read(whole.parent / "study.toml", Study)
    with pytest.MonkeyPatch.context() as patch:
        changed = {**facts, "functions": {**facts["functions"], "force": "0"}}
        patch.setattr(RUN, "origin", lambda *args: changed)
        with (
            pytest.warns(RunWarning, match=r"was damaged: .*recomputed: block 1"),
            pytest.raises(FolderError, match="the model differs in force"),
        ):
            run_study(study, copy, folder=whole.parent)
    assert (copy / "blocks" / "000001").exists()
