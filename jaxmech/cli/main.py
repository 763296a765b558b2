"""The command line: `jaxmech ensemble`, `fit`, `plot`, `models`, `check`, `compare` and the rest.

Everything heavy is imported by the command that needs it, so that `--help` does not wait.
"""

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmech.cli import help as help_texts

if TYPE_CHECKING:
    from jaxmech.cli.resolve import Situation

DONE, TOO_MANY_FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
SERIOUS = 1  # of `check`
DAMAGED = 1  # of `verify`


class InputError(ValueError):
    """Bad input that only the command line can meet."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: the arguments; those of the process by default.

    Returns:
        The exit code: 0 done, 1 too many failed trajectories, 2 bad input, or files and output
        that cannot be read or written, 130 interrupted.

    Example:
        >>> main(["models", "no_such_model"])
        2
    """
    arguments = _parser().parse_args(argv)
    from jaxmech.config.run_folder import FolderError
    from jaxmech.config.toml import ConfigError

    try:
        code = int(arguments.command(arguments))
        sys.stdout.flush()
        return code
    except (ConfigError, FolderError, InputError) as error:
        print(f"jaxmech: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has seen enough, as in `jaxmech info | head`
        _silence()
        return DONE
    except OSError as error:
        _silence()
        place = error.filename or "the standard output"
        _tell(f"{place} cannot be read or written: {error.strerror or error}")
        return BAD_INPUT
    except MemoryError as error:
        _tell(f"there is not enough memory: {error}")
        return BAD_INPUT


def _silence() -> None:
    """What is still to be printed goes nowhere where it cannot go out."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _ensemble(arguments: argparse.Namespace) -> int:
    import jax

    from jaxmech.config.errors import StudyError
    from jaxmech.config.toml import located, read
    from jaxmech.ensemble import Study, as_table, failed, name_problems, run

    _require_good_jax()
    config = Path(arguments.config)
    out = Path(arguments.out) if arguments.out else Path("runs") / config.stem
    study = read(config, Study, lambda data: name_problems(data, config.parent))
    if arguments.chunk is not None:
        study = replace(study, chunk=arguments.chunk)
    if study.precision == "float64":
        jax.config.update("jax_enable_x64", True)
    begun = time.perf_counter()
    try:
        summary = run(study, out, folder=config.parent, progress=True, tell=_tell)
    except StudyError as error:
        raise located(error, config) from error
    except KeyboardInterrupt:
        again = _again("ensemble", arguments, "out")
        print(f"jaxmech: interrupted; what is done is kept, continue by: {again}", file=sys.stderr)
        return INTERRUPTED
    print(as_table(summary))
    _report(out, time.perf_counter() - begun)
    allowed = study.failed_allowed * study.size
    return TOO_MANY_FAILED if failed(summary) > allowed else DONE


def _report(out: Path, seconds: float) -> None:
    from jaxmech.ensemble import open_results
    from jaxmech.plot.ensemble_figures import draw_pictures

    pictures = draw_pictures(open_results(out))
    print(f"{seconds:.1f} s; results in {out / 'results.zarr'}")
    if pictures:
        print(f"pictures in {out / 'pictures'}: {', '.join(file.name for file in pictures)}")


def _again(command: str, arguments: argparse.Namespace, *options: str) -> str:
    given = ((name, getattr(arguments, name)) for name in options)
    return " ".join(
        [
            f"jaxmech {command} {arguments.config}",
            *(f"--{n} {value}" for n, value in given if value),
        ]
    )


def _fit(arguments: argparse.Namespace) -> int:
    import jax

    from jaxmech.cli.fit.build import name_problems
    from jaxmech.cli.fit.report import as_text
    from jaxmech.cli.fit.run import FitError, run_fit
    from jaxmech.cli.fit.study import FitStudy
    from jaxmech.config.errors import StudyError
    from jaxmech.config.toml import located, read
    from jaxmech.identify.data.files import TableError

    _require_good_jax()
    jax.config.update("jax_enable_x64", True)
    config = Path(arguments.config)
    out = Path(arguments.out) if arguments.out else Path("runs") / config.stem
    study = read(config, FitStudy, lambda data: name_problems(data, config.parent))
    if arguments.data:
        data = replace(study.data, file=str(Path(arguments.data).resolve()))
        study = replace(study, data=data)
    begun = time.perf_counter()
    try:
        outcome = run_fit(
            study, out, folder=config.parent, progress=sys.stderr.isatty(), tell=_tell
        )
    except StudyError as error:
        raise located(error, config) from error
    except FitError as error:
        raise InputError(f"{config}: {error}") from error
    except TableError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        again = _again("fit", arguments, "out", "data")
        print(f"jaxmech: interrupted; what is done is kept, continue by: {again}", file=sys.stderr)
        return INTERRUPTED
    print(as_text(outcome))
    print(f"{time.perf_counter() - begun:.1f} s; report and pictures in {out}")
    return DONE if outcome.succeeded else TOO_MANY_FAILED


def _plot(arguments: argparse.Namespace) -> int:
    from jaxmech.ensemble import open_results
    from jaxmech.plot.ensemble_figures import draw_pictures

    if (Path(arguments.run) / "fit.npz").is_file():
        from jaxmech.cli.fit.run import redraw

        pictures = redraw(Path(arguments.run))
    else:
        pictures = draw_pictures(open_results(Path(arguments.run)))
    for picture in pictures:
        print(picture)
    return DONE


def _verify(arguments: argparse.Namespace) -> int:
    from jaxmech.ensemble import open_results, verify

    path = Path(arguments.run)
    damage = verify(path)
    for one in damage:
        print(one)
    if damage:
        return DAMAGED
    if not (path / "results.zarr").is_dir():  # of a fit
        print(f"{path} is as it was written")
        return DONE
    results = open_results(path)
    print(
        f"{path} is as it was written; {len(results.blocks)} of {results.count} blocks are computed"
    )
    return DONE


def _tell(text: str) -> None:
    """A word to the person beside the results."""
    print(f"jaxmech: {text}", file=sys.stderr, flush=True)


def _models(arguments: argparse.Namespace) -> int:
    from jaxmech.cli.catalogue import table, told

    try:
        print(told(arguments.name) if arguments.name else table())
    except ValueError as error:
        raise InputError(str(error)) from error
    return DONE


def _check(arguments: argparse.Namespace) -> int:
    from jaxmech.analysis import ShortRun, structure

    found = _situation(arguments)
    run = None if arguments.fast else ShortRun()
    if run is not None:
        _tell("compiling a short run, its gradients and its batches; --fast goes without them")
    report = structure(found.system, found.q, found.v, found.t, found.params, run=run)
    print(report)
    return SERIOUS if report.serious else DONE


def _compare(arguments: argparse.Namespace) -> int:
    from jaxmech.formulations import compare_formulations

    found = _situation(arguments)
    _tell("compiling every law of motion, and counting what each costs")
    print(compare_formulations(found.system, found.q, found.v, found.t, found.params))
    return DONE


def _situation(arguments: argparse.Namespace) -> "Situation":
    import jax

    from jaxmech.cli.resolve import SituationError, situation

    _require_good_jax()
    jax.config.update("jax_enable_x64", True)
    try:
        found = situation(
            arguments.system,
            options=arguments.option,
            start=arguments.start,
            params=arguments.param,
        )
    except SituationError as error:
        raise InputError(str(error)) from error
    if found.remark:
        print(textwrap.fill(found.remark, 100))
    return found


def _bench(arguments: argparse.Namespace) -> int:
    from importlib import import_module

    import jax

    _require_good_jax()
    config = Path(arguments.config)
    clone = str(_clone(config))
    if clone not in sys.path:
        sys.path.insert(0, clone)
    jax.config.update("jax_enable_x64", True)
    benchmark = import_module("experiments.speed.__main__")
    return int(benchmark.main(config, Path(arguments.out) if arguments.out else None))


def _clone(config: Path) -> Path:
    """The clone that a configuration lies in, or else the working directory."""
    for folder in (config.resolve().parent.parent, Path.cwd()):
        if (folder / "experiments" / "speed" / "__main__.py").is_file():
            return folder
    raise InputError(
        "the benchmark belongs to a clone of the repository, but there is no experiments/speed "
        f"beside the folder of {config}, nor here; go into a clone, or name its configs/speed.toml"
    )


def _info(arguments: argparse.Namespace) -> int:
    import jax

    from jaxmech.config.environment import environment

    jax.config.update("jax_enable_x64", True)
    facts = environment()
    print("\n".join(f"{key:<10} {value}" for key, value in facts.items() if value != ""))
    print("precision  float64, unless a configuration asks for float32")
    _require_good_jax()
    return DONE


def _require_good_jax() -> None:
    """The command line does not compute with a jax that is known to give wrong numbers."""
    from importlib.metadata import version

    from jaxmech.cli.jax_versions import check_jax

    problem = check_jax(version("jax"))
    if problem:
        raise InputError(problem)


class _Lazy(argparse.ArgumentParser):
    """A parser whose closing text is made only when it is printed."""

    closing: Callable[[], str] | None = None

    def format_help(self) -> str:
        text = super().format_help()
        return f"{text}\n{self.closing()}\n" if self.closing else text


def _add_situation(command: argparse.ArgumentParser) -> None:
    command.add_argument("system", metavar="SYSTEM", help="model, or path/file.py:attribute")
    for option, text in (
        ("start", "a start variable of a model or a coordinate of a system"),
        ("param", "a parameter"),
        ("option", "an argument of the function that makes the model"),
    ):
        command.add_argument(
            f"--{option}", metavar="KEY=VALUE", action="append", default=[], help=text
        )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, but is {text}")
    return int(text)


def _schema() -> str:
    from jaxmech.config.toml import described
    from jaxmech.ensemble import Study

    return help_texts.EXAMPLE + described(Study)


def _fit_schema() -> str:
    from jaxmech.cli.fit.study import FitStudy
    from jaxmech.config.toml import described

    return help_texts.FIT_EXAMPLE + described(FitStudy)


def _parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("jaxmech", description=help_texts.ABOUT, formatter_class=shape)
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", title="commands", parser_class=_Lazy
    )

    def command(name: str, text: str, run: Callable[..., int], about: str = "") -> _Lazy:
        sub = commands.add_parser(name, help=text, description=about or text, formatter_class=shape)
        sub.set_defaults(command=run)
        return sub

    ensemble = command(
        "ensemble", "run or continue a Monte Carlo study", _ensemble, help_texts.ENSEMBLE
    )
    ensemble.add_argument("config", metavar="CONFIG", help="configuration, a TOML file (below)")
    ensemble.add_argument("--out", metavar="DIR", help="run folder [runs/<name of CONFIG>]")
    ensemble.add_argument(
        "--chunk", metavar="N", type=_positive, help="in place of the `chunk` of CONFIG"
    )
    ensemble.closing = _schema
    fit = command("fit", "fit parameters to recordings", _fit, help_texts.FIT)
    fit.add_argument("config", metavar="CONFIG", help="configuration, a TOML file (below)")
    fit.add_argument("--out", metavar="DIR", help="run folder [runs/<name of CONFIG>]")
    fit.add_argument("--data", metavar="FILE", help="in place of the `data.file` of CONFIG")
    fit.closing = _fit_schema
    plot = command("plot", "draw the pictures of a run folder again", _plot)
    plot.add_argument("run", metavar="RUN", help="run folder of `ensemble` or `fit`")
    verify = command("verify", "look for damage in a run folder", _verify, help_texts.VERIFY)
    verify.add_argument("run", metavar="RUN", help="run folder of `ensemble`")
    models = command("models", "list the ready models, or show one", _models)
    models.add_argument("name", metavar="NAME", nargs="?", help="a model of the list")
    check = command("check", "what to know before trusting a system", _check, help_texts.CHECK)
    check.add_argument(
        "--fast", action="store_true", help="without gradients and lanes, which take longest"
    )
    compare = command(
        "compare", "compare the laws of motion at a state", _compare, help_texts.COMPARE
    )
    for at_a_state in (check, compare):
        _add_situation(at_a_state)
    bench = command("bench", "measure the speed of batches, in a clone", _bench, help_texts.BENCH)
    bench.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        default="configs/speed.toml",
        help="a TOML file like configs/speed.toml or configs/speed_quick.toml [%(default)s]",
    )
    bench.add_argument("--out", metavar="DIR", help="run folder [runs/<name of CONFIG>]")
    command("info", "show versions, devices and precision", _info)
    return parser
