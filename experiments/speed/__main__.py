"""Usage: python -m experiments.speed with the arguments of `jaxmech bench`."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import jax

from experiments.speed import benchmarks, charts, report
from experiments.speed.benchmarks import Measured, Results, places
from experiments.speed.compare import compare
from experiments.speed.settings import Speed
from jaxmech.compiler.platforms import NATIVE
from jaxmech.config.errors import InputError
from jaxmech.config.run_folder import FolderError
from jaxmech.config.toml import read

BAD_INPUT, INTERRUPTED = 2, 130
BUSY = 0.5  # average number of running processes


def main(config: Path, out: Path | None = None, devices: Sequence[str] = ("cpu",)) -> int:
    """Run the benchmark of a configuration file and write its folder, `runs/<name>` by default.

    Returns 0, or 130 after an interruption; what was measured until then is written.
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
        print(f"Written to {out}/: {', '.join(write(results, out))}", flush=True)
    if code:
        print("Interrupted; what was measured until then is written.", file=sys.stderr)
    return code


def write(results: Results, out: Path) -> list[str]:
    """Write the run folder, and return the names of its files."""
    texts = {"speed.json": report.as_json(results), "speed.md": report.as_markdown(results)}
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    pictures = {}
    for k, (_, table) in enumerate(places(results.table)):
        if any(measured.speed(name) for measured in table for name in measured.outcomes):
            pictures[f"speed_{k + 1}.png" if k else "speed.png"] = charts.bars(table)
    if any(measured.outcomes for measured in results.scaling):
        pictures["scaling.png"] = charts.scaling(results.scaling)
    for name, figure in pictures.items():
        figure.savefig(out / name, dpi=150)
    return [*texts, *pictures]


def _progress(text: str) -> None:
    """Show what is going on in the last line of a terminal, and nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _finished(measured: Measured) -> None:
    _progress("")
    lines = [report.heading(measured), report.facts(measured), *report.problems([measured])]
    print("\n".join([*lines, ""]), flush=True)


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="jaxmech bench")
    parser.add_argument("config", nargs="?", type=Path, default=Path("configs/speed.toml"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--devices", choices=["all", *NATIVE], default="all")
    parser.add_argument("--compare", nargs="+", type=Path, default=[])
    return parser.parse_args()


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")  # other devices are for the workers
    jax.config.update("jax_enable_x64", True)
    given = _arguments()
    try:
        if given.compare:
            sys.exit(compare(given.compare, given.out or Path("runs/compare")))
        wanted = NATIVE if given.devices == "all" else (given.devices,)
        sys.exit(main(given.config, given.out, wanted))
    except InputError as error:
        print(f"jaxmech: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before anything was measured
        sys.exit(INTERRUPTED)
