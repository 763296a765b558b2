"""The command line: `jaxmech ensemble`, `failure`, `fit`, `plot`, `models`, `check` and the rest.

Each command imports what it needs, so that `--help` does not wait for all of it.
"""

import gc
import json
import os
import shlex
import signal
import sys
import textwrap
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmech.cli.interrupt import TERMINATED, resumable, tell
from jaxmech.cli.parser import described_by, parser
from jaxmech.config.errors import InputError, StoppedError
from jaxmech.utils import announce

if TYPE_CHECKING:
    from jaxmech.cli.resolve import SystemInState
    from jaxmech.ensemble import Study

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130
UNSATISFACTORY = 1  # too many failures, not converged, damaged, or serious findings


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with the given arguments, by default those of the process.

    Returns:
        The exit code: 0 done; 1 too many failed trajectories, a fit that has not converged, damage
        or serious findings; 2 bad input, or files that cannot be read or written; 130 interrupted;
        143 stopped by SIGTERM.

    Example:
        >>> main(["models", "no_such_model"])
        2
    """
    if argv is None:  # the process is this command: what is imported stays, so that the
        gc.freeze()  # garbage collector need not look at it again and again
    commands = parser()
    arguments = commands.parse_args(argv)
    if arguments.command is None:
        commands.print_help()
        return DONE
    try:
        with announce.command():
            code = _COMMANDS[arguments.command](arguments)
        sys.stdout.flush()
        return code
    except InputError as error:
        tell(str(error))
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as error:
        tell(f"a function of the model has ended the process (exit code {error.code}); correct it")
        return BAD_INPUT
    except StoppedError:
        return TERMINATED
    except BrokenPipeError:  # the reader has closed the pipe, as in `jaxmech doctor | head`
        _silence()
        return DONE
    except OSError as error:
        _silence()
        location = error.filename or "the standard output"
        why = f"{location} cannot be read or written: {error.strerror}"
        tell(why if error.errno else str(error))  # an error of the package names the file
        return BAD_INPUT
    except MemoryError as error:
        tell(f"there is not enough memory: {error}")
        return BAD_INPUT


def _silence() -> None:
    """Discard pending output, if it cannot be printed."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _new(arguments: Namespace) -> int:
    from jaxmech.cli.new_study import write_study

    for file in write_study(arguments.folder):
        print(file)
    location = shlex.quote(str(arguments.folder))
    print(f"Next: cd {location} && jaxmech ensemble study.toml --out runs/first")
    return DONE


def _ensemble(arguments: Namespace) -> int:
    from jaxmech.cli.studies import compute

    return _study(arguments, compute)


def _failure(arguments: Namespace) -> int:
    from jaxmech.cli.studies import compute_failure

    return _study(arguments, compute_failure)


def _study(arguments: Namespace, compute: Callable[..., tuple[str, bool]]) -> int:
    """Compute something of the study of a configuration file, and print it."""
    _require_good_jax()
    study, _ = _named_study(config := Path(arguments.config))
    assert study is not None
    if study.precision == "float64":
        _use_float64()
    with _located(config):
        output, good = compute(arguments, study, config)
    print(output)
    return DONE if good else UNSATISFACTORY


@contextmanager
def _located(config: Path) -> Iterator[None]:
    """Add the lines of the configuration file to the errors of a study."""
    from jaxmech.config import located
    from jaxmech.config.errors import StudyError

    try:
        yield
    except StudyError as error:
        raise located(error, config) from error


def _fit(arguments: Namespace) -> int:
    from jaxmech.cli.fit.build import name_problems
    from jaxmech.cli.fit.run import FitError, as_text, run_fit
    from jaxmech.cli.fit.study import FitStudy
    from jaxmech.cli.studies import cluster_of, out_of
    from jaxmech.config import read

    _use_good_jax()
    config = Path(arguments.config)
    out = out_of(arguments, config.stem)
    _require_no_run_code(config)
    study = read(config, FitStudy, lambda data: name_problems(data, config.parent))
    if arguments.data:
        data = replace(study.data, file=str(Path(arguments.data).resolve()))
        study = replace(study, data=data)
    study = replace(study, cluster=cluster_of(study.cluster, arguments.cluster))
    start, bar = time.perf_counter(), sys.stderr.isatty()
    try:
        with _located(config), resumable(arguments, "out", "data", "cluster"):
            outcome = run_fit(study, out, folder=config.parent, progress=bar, tell=tell)
    except FitError as error:
        raise InputError(f"{config}: {error}") from error
    print(as_text(outcome))
    print(f"{time.perf_counter() - start:.1f} s; report and pictures in {out}")
    return DONE if outcome.succeeded else UNSATISFACTORY


def _require_no_run_code(config: Path) -> None:
    """Refuse a configuration that names Python files in a run folder, before any is imported."""
    from jaxmech.config import named_files, require_no_run_code

    require_no_run_code(named_files(config), config.parent)


def _plot(arguments: Namespace) -> int:
    from jaxmech.cli.fit.run import FIT, redraw
    from jaxmech.config import command_of
    from jaxmech.ensemble import open_results, read_failure
    from jaxmech.plot import draw_failure, draw_pictures

    path = Path(arguments.run)
    if (path / FIT).is_file():
        pictures: Iterable[Path] = redraw(path)
    elif command_of(path) == "failure":
        pictures = draw_failure(read_failure(path), path / "pictures")
    else:
        pictures = draw_pictures(open_results(path))
    for picture in pictures:
        print(picture)
    return DONE


def _replay(arguments: Namespace) -> int:
    from jaxmech.ensemble import replay

    _use_good_jax()
    study, folder = _named_study(arguments.config)
    trajectory = replay(Path(arguments.run), arguments.index, study, folder)
    print(trajectory)
    if arguments.out:
        from jaxmech.plot import draw_replay

        for picture in draw_replay(trajectory, arguments.out):
            print(picture)
    return DONE if all(trajectory.compared.values()) else UNSATISFACTORY


def _named_study(config: Path | None) -> "tuple[Study | None, Path]":
    """The study of a configuration that an option names, and its folder."""
    from jaxmech.config import read
    from jaxmech.ensemble import Study, name_problems

    if config is None:
        return None, Path()
    _require_no_run_code(config)
    return read(config, Study, lambda data: name_problems(data, config.parent)), config.parent


def _report(arguments: Namespace) -> int:
    from jaxmech.cli.fit.run import FIT, stored
    from jaxmech.cli.report.fit_page import write_fit_report
    from jaxmech.cli.report.page import write_report
    from jaxmech.cli.studies import failure_report
    from jaxmech.config import command_of

    _use_good_jax()
    if (run := Path(arguments.run)).joinpath(FIT).is_file():
        fit, sensors, title = stored(run)
        print(write_fit_report(fit, arguments.out or run / "report.html", title, sensors))
        return DONE
    study, folder = _named_study(arguments.config)
    if command_of(run) == "failure":
        print(failure_report(run, arguments.out, arguments.animate, study, folder))
        return DONE
    print(write_report(run, arguments.out, arguments.animate, study, folder, tell))
    return DONE


def _compare_runs(arguments: Namespace) -> int:
    from jaxmech.ensemble import compare_runs

    print(compare_runs(Path(arguments.first), Path(arguments.second)))
    return DONE


def _verify(arguments: Namespace) -> int:
    from jaxmech.ensemble import open_results, verify

    path = Path(arguments.run)
    damage = verify(path)
    for file in damage:
        print(file)
    if damage:
        return UNSATISFACTORY
    blocks = ""
    if (path / "results.zarr").is_dir():  # not of a fit
        results = open_results(path)
        blocks = f"; {len(results.blocks)} of {results.count} blocks are computed"
    print(f"{path} is undamaged{blocks}")
    return DONE


def _models(arguments: Namespace) -> int:
    from jaxmech.cli.resolve import page, table

    print(page(arguments.name) if arguments.name else table())
    return DONE


def _check(arguments: Namespace) -> int:
    from jaxmech.analysis import ShortRun, structure

    loaded = _loaded_state(arguments)
    run = None if arguments.fast else ShortRun()
    if run is not None:
        tell("compiling a short run, its gradients and its batches; --fast skips them")
    report = structure(loaded.system, loaded.q, loaded.v, loaded.t, loaded.params, run=run)
    print(report)
    return UNSATISFACTORY if report.serious else DONE


def _audit(arguments: Namespace) -> int:
    from jaxmech.cli.audit.deviation import draw
    from jaxmech.cli.audit.report import audit

    _use_good_jax()
    try:
        report = audit(arguments.file, arguments.seconds)
    except (ImportError, ValueError) as error:
        raise InputError(str(error)) from error
    print(report)
    if arguments.out and report.deviation is not None:
        print(draw(report.deviation, report.name, Path(arguments.out)))
    return UNSATISFACTORY if report.serious else DONE


def _compare(arguments: Namespace) -> int:
    from jaxmech.formulations import compare_formulations

    loaded = _loaded_state(arguments)
    tell("compiling every law of motion and counting its operations")
    print(compare_formulations(loaded.system, loaded.q, loaded.v, loaded.t, loaded.params))
    return DONE


def _stability(arguments: Namespace) -> int:
    from jaxmech.cli.stability import show_equilibria, show_modes

    show = show_modes if arguments.command == "modes" else show_equilibria
    print(show(_loaded_state(arguments), arguments))
    return DONE


def _loaded_state(arguments: Namespace) -> "SystemInState":
    from jaxmech.cli.resolve import load_state

    _use_good_jax()
    options, start, params = arguments.option, arguments.start, arguments.param
    loaded = load_state(arguments.system, options=options, start=start, params=params)
    if loaded.remark:  # not where the output is to be read by a program
        tell(loaded.remark) if getattr(arguments, "json", False) else print(
            textwrap.fill(loaded.remark, 100)
        )
    return loaded


def _bench(arguments: Namespace) -> int:
    from jaxmech.cli.bench import measured

    _require_good_jax()
    return INTERRUPTED if (code := measured(arguments)) == -signal.SIGINT else code


def _schema(arguments: Namespace) -> int:
    from jaxmech.config import json_schema

    print(json.dumps(json_schema(described_by(arguments.kind)), indent=2))
    return DONE


def _doctor(arguments: Namespace) -> int:
    from jaxmech.cli import doctor

    print(doctor.facts_as_text())
    _require_good_jax()
    unmet = list(doctor.unmet_requirements())
    for line in unmet:
        print(f"  {'requires':<16}{line}")
    failed = 0
    if not arguments.fast:
        _use_float64()
    for test in () if arguments.fast else doctor.self_tests():
        outcome = f"FAILED, {test.failure}" if test.failure else f"passed, {test.seconds:.1f} s"
        print(f"  {'self-test':<16}{test.name}: {outcome}", flush=True)
        failed += bool(test.failure)
    return UNSATISFACTORY if failed or unmet else DONE


def _use_good_jax() -> None:
    """Compute in double precision, with a release of jax that is not known to be wrong."""
    _require_good_jax()
    _use_float64()


def _use_float64() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)


def _require_good_jax() -> None:
    """Refuse to compute with a release of jax that is known to give wrong numbers."""
    from importlib.metadata import version

    from jaxmech.cli.jax_versions import check_jax

    if problem := check_jax(version("jax")):
        raise InputError(problem)


_COMMANDS = {
    "new": _new,
    "ensemble": _ensemble,
    "failure": _failure,
    "fit": _fit,
    "plot": _plot,
    "replay": _replay,
    "report": _report,
    "compare-runs": _compare_runs,
    "verify": _verify,
    "models": _models,
    "check": _check,
    "audit": _audit,
    "compare": _compare,
    "modes": _stability,
    "equilibria": _stability,
    "bench": _bench,
    "schema": _schema,
    "doctor": _doctor,
}
