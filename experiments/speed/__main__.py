"""Usage: python -m experiments.speed [configs/speed.toml] [runs/speed], or jaxmech bench."""

import sys
from collections.abc import Callable
from pathlib import Path

import jax

from experiments.speed import benchmarks, charts, report
from experiments.speed.benchmarks import Results
from experiments.speed.settings import Speed
from jaxmech.config.run_folder import FolderError
from jaxmech.config.toml import ConfigError, read

BAD_INPUT, INTERRUPTED = 2, 130
BUSY = 0.5  # average number of processes that run


def main(config: Path, out: Path | None = None) -> int:
    """Runs the benchmark of a configuration file and writes the run folder.

    Args:
        config: a TOML file with the keys of `Speed`.
        out: run folder, `runs/<name of config>` by default; it is written also with what is
            measured until an interruption.

    Returns:
        The exit code: 0 done, 130 interrupted.
    """
    results = Results(read(config, Speed))
    out = Path("runs") / config.stem if out is None else out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"{out} cannot be used: {error.strerror}") from error
    if results.load > BUSY:
        print(
            f"The machine is busy already (load {results.load:.1f}): the figures will be too low, "
            "most of all those of routes that call LAPACK.",
            file=sys.stderr,
        )
    code = 0
    try:
        benchmarks.run(results, _status(), lambda measured: _show(f"{report.line(measured)}\n"))
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        _show(f"Written to {out}/: {', '.join(write(results, out))}")
    if code:
        print("Interrupted; what was measured until then is written.", file=sys.stderr)
    return code


def write(results: Results, out: Path) -> list[str]:
    """The run folder; the names of its files."""
    texts = {"speed.json": report.as_json(results), "speed.md": report.as_markdown(results)}
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    files = [*texts]
    if any(measured.speed(name) for measured in results.table for name in measured.outcomes):
        charts.bars(results.table).figure.savefig(out / "speed.png", dpi=150)
        files.append("speed.png")
    if results.batches or results.lengths:
        charts.scaling(results.batches, results.lengths).savefig(out / "scaling.png", dpi=150)
        files.append("scaling.png")
    return files


def _status() -> Callable[[str], None]:
    """Shows what is going on in one line of a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _show(text: str) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    print(text, flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    arguments = [Path(argument) for argument in sys.argv[1:]] or [Path("configs/speed.toml")]
    try:
        sys.exit(main(*arguments))
    except (ConfigError, FolderError) as error:
        print(f"jaxmech: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before anything was measured
        sys.exit(INTERRUPTED)
