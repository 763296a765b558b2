"""Usage: python -m experiments.speed with the arguments of `jaxmech bench`."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import jax

from experiments.speed import benchmarks, report
from experiments.speed.benchmarks import Measured, Results
from experiments.speed.settings import Speed
from jaxmech.compiler.platforms import NATIVE
from jaxmech.config.errors import FolderError, InputError
from jaxmech.config.toml import read

BAD_INPUT, INTERRUPTED = 2, 130
BUSY = 0.5  # average number of running processes


def main(config: Path, out: Path | None = None, devices: Sequence[str] = ("cpu",)) -> int:
    """Run the benchmark of a configuration file and write its folder, `runs/<name>` by default.

    Returns 0, or 130 after an interruption; earlier measurements are written.
    """
    speed = read(config, Speed)
    out = Path("runs") / config.stem if out is None else out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"{out} cannot be used: {error.strerror}") from error
    results = Results(speed, benchmarks.present(devices))
    if not results.devices:
        raise InputError(f"JAX finds no device of the kind that --devices names: {devices[0]}")
    if results.load > BUSY:
        print(
            f"The machine is already busy (load {results.load:.1f}): the figures will be too low, "
            "most of all those of routes that call LAPACK.",
            file=sys.stderr,
        )
    code = 0
    try:
        benchmarks.run(results, _progress, _finished)
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        _progress("")
        found = report.content(results)
        (out / "speed.json").write_text(report.as_json(found), encoding="utf-8")
        (out / "speed.md").write_text(report.as_markdown(found), encoding="utf-8")
        print(f"Written to {out}/: speed.json, speed.md", flush=True)
    if code:
        print("Interrupted; the measurements up to then are written.", file=sys.stderr)
    return code


def _progress(text: str) -> None:
    """Show the progress in the last line of a terminal, and nowhere else."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _finished(measured: Measured) -> None:
    _progress("")
    print("\n".join([*report.of_case(report.as_row(measured)), ""]), flush=True)


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="jaxmech bench")
    parser.add_argument("config", nargs="?", type=Path, default=Path("configs/speed.toml"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--devices", choices=["all", *NATIVE], default="all")
    return parser.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # other devices are for the workers
    jax.config.update("jax_enable_x64", True)
    given = _arguments()
    try:
        wanted = NATIVE if given.devices == "all" else (given.devices,)
        sys.exit(main(given.config, given.out, wanted))
    except InputError as error:
        print(f"jaxmech: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before anything was measured
        sys.exit(INTERRUPTED)
