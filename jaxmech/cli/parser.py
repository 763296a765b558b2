"""The arguments of the commands."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import shtab

from jaxmech.cli import help as texts
from jaxmech.utils.text import close_name, not_one_of

FILES = {  # the class that describes a kind of configuration: its module and name
    "study": ("jaxmech.ensemble", "Study"),
    "fit": ("jaxmech.cli.fit.study", "FitStudy"),
}


class _LazyParser(argparse.ArgumentParser):
    """A parser whose closing text is made only when it is printed."""

    closing: Callable[[], str] | None = None

    def format_help(self) -> str:
        page = super().format_help()
        return f"{page}\n{self.closing()}\n" if self.closing else page


class _Commands(argparse.ArgumentParser):
    """The parser of all commands, which suggests names for misspelt commands and options."""

    of_commands: Mapping[str, argparse.ArgumentParser] = {}

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, or end the process with a message."""
        args = sys.argv[1:] if args is None else [*args]
        if args and args[0][:1] != "-" and args[0] not in self.of_commands:
            self.error(f"{args[0]} {not_one_of(args[0], self.of_commands, 'a command')}")
        arguments, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = self.of_commands.get(arguments.command, self)
            command.error(_unknown(unknown, command))
        return arguments


def _unknown(arguments: Sequence[str], command: argparse.ArgumentParser) -> str:
    wrong = next((argument for argument in arguments if argument.startswith("-")), None)
    if wrong is None:
        return f"unrecognized arguments: {' '.join(arguments)}"
    name = wrong.partition("=")[0].lstrip("-")
    near = close_name(name, set(re.findall(r"--([a-z][a-z-]*)", command.format_usage())))
    hint = f"; did you mean --{near}?" if near else ""
    return f"{wrong} is not an option{hint}"


def parser() -> argparse.ArgumentParser:
    """The parser of `jaxmech`, which stores the name of a command in `command`."""
    shape = argparse.RawDescriptionHelpFormatter
    root = _Commands("jaxmech", description=texts.ABOUT, formatter_class=shape)
    root.add_argument("--version", action="version", version=f"jaxmech {version('jaxmech')}")
    shtab.add_argument_to(root, "--print-completion", help="print the completion of a shell")
    commands = root.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=_LazyParser
    )
    root.of_commands = commands.choices

    def add(name: str, summary: str, description: str = "") -> _LazyParser:
        return commands.add_parser(
            name, help=summary, description=description or summary, formatter_class=shape
        )

    new = add("new", "write a study that runs into a new folder, to start from", texts.NEW)
    new.add_argument("folder", metavar="NAME", type=Path, help="the folder to make")
    _add_studies(add)
    _add_finished_runs(add)
    _add_questions(add)
    _add_bench(add)
    schema = add("schema", "the keys of a configuration, for editors", texts.SCHEMA)
    schema.add_argument("kind", choices=tuple(FILES), help="what the configuration is for")
    doctor = add("doctor", "examine this installation, and test it", texts.DOCTOR)
    doctor.add_argument("--fast", action="store_true", help="without the self-tests")
    return root


_Add = Callable[..., _LazyParser]  # adds a command by its name, a line, and a text about it


def _add_studies(add: _Add) -> None:
    """`ensemble`, `failure` and `fit`, which make run folders."""
    ensemble = add("ensemble", "run or continue a Monte Carlo study", texts.ENSEMBLE)
    ensemble.closing = _keys(texts.EXAMPLE, "study")
    failure = add("failure", "the probability of a failure, down to 1e-9", texts.FAILURE)
    failure.add_argument("--json", action="store_true", help="print JSON")
    fit = add("fit", "fit parameters to recordings", texts.FIT)
    fit.closing = _keys(texts.FIT_EXAMPLE, "fit")
    for command in (ensemble, failure, fit):
        command.add_argument("config", metavar="CONFIG", help="configuration, a TOML file (below)")
        _add_out(command)
    _add_cluster(fit)
    _add_blocks(ensemble)
    fit.add_argument("--data", metavar="FILE", help="in place of the `data.file` of CONFIG")


def _add_cluster(command: _LazyParser) -> None:
    command.add_argument(
        "--cluster",
        metavar="WHERE",
        help="local:4, slurm, tcp://host:8786 or file:scheduler.json, in place of `cluster`",
    )


def _add_blocks(command: _LazyParser) -> None:
    """Add the options of a study that is computed in blocks."""
    _add_cluster(command)
    command.add_argument(
        "--chunk", metavar="N", type=_positive, help="in place of the `chunk` of CONFIG"
    )
    command.add_argument(
        "--progress", choices=("bar", "json", "none"), default="bar", help="what to show of it"
    )
    command.add_argument(
        "--blocks", metavar="FIRST:LAST", type=_part,
        help="compute only these blocks, from the first up to but without the last",
    )  # fmt: skip


def _add_finished_runs(add: _Add) -> None:
    """Add the commands that read a run folder."""
    plot = add("plot", "draw the pictures of a run folder again")
    plot.add_argument("run", metavar="RUN", help="run folder of `ensemble`, `failure` or `fit`")
    replay = add("replay", "compute one trajectory of a study again, alone", texts.REPLAY)
    report = add(
        "report", "one page about a study, a failure or a fit, with everything in it", texts.REPORT
    )
    for command in (replay, report):
        kinds = "`ensemble`, `failure` or `fit`" if command is report else "`ensemble`"
        command.add_argument("run", metavar="RUN", help=f"run folder of {kinds}")
        command.add_argument(
            "--config",
            metavar="CONFIG",
            type=Path,
            help="the configuration of the run, where it names Python files or a table of draws",
        )
    replay.add_argument("index", metavar="INDEX", type=_index, help="its number, from 0")
    replay.add_argument("--out", metavar="DIR", type=Path, help="folder for pictures [none]")
    report.add_argument("--out", metavar="FILE", type=Path, help="the page [RUN/report.html]")
    report.add_argument(
        "--animate", metavar="INDEX", type=_index, nargs="*",
        help="numbers of trajectories or design points to animate; none for no animation [four]",
    )  # fmt: skip
    runs = add("compare-runs", "what differs between two studies", texts.COMPARE_RUNS)
    for name in ("first", "second"):
        runs.add_argument(name, metavar="RUN", help="run folder of `ensemble`")
    verify = add("verify", "look for damage in a run folder", texts.VERIFY)
    verify.add_argument("run", metavar="RUN", help="run folder of `ensemble` or `fit`")


def _add_questions(add: _Add) -> None:
    """Add the commands about one system."""
    models = add("models", "list the ready models, or show one")
    models.add_argument("name", metavar="NAME", nargs="?", help="a model of the list")
    check = add("check", "check a system before trusting it", texts.CHECK)
    check.add_argument(
        "--fast", action="store_true", help="without gradients and lanes, which take longest"
    )
    audit = add("audit", "examine an MJCF or URDF file", texts.AUDIT)
    audit.add_argument("file", metavar="FILE", help="an .xml or .urdf file")
    audit.add_argument(
        "--seconds", metavar="T", type=_seconds, default=1.0,
        help="time over which loops are compared [%(default)s]",
    )  # fmt: skip
    audit.add_argument("--out", metavar="DIR", help="folder for the picture [none]")
    compare = add("compare", "compare the laws of motion at a state", texts.COMPARE)
    modes = add("modes", "frequencies, damping and stability of an equilibrium", texts.MODES)
    modes.add_argument(
        "--steady", action="store_true", help="the steady motion nearest to the state, not rest"
    )
    equilibria = add("equilibria", "all equilibria that random starts lead to", texts.EQUILIBRIA)
    equilibria.add_argument(
        "--starts", metavar="N", type=_positive, default=100, help="random starts [%(default)s]"
    )
    equilibria.add_argument(
        "--spread", metavar="X", type=float, default=2.0,
        help="by how much coordinates differ from the state at most [%(default)s]",
    )  # fmt: skip
    equilibria.add_argument("--seed", metavar="N", type=int, default=0, help="of the starts [0]")
    for command in (modes, equilibria):
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--out", metavar="DIR", help="folder for pictures [none]")
    for command in (check, compare, modes, equilibria):
        _add_system(command)


def _add_bench(add: _Add) -> None:
    bench = add("bench", "measure the speed of batches, in a clone", texts.BENCH)
    bench.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        default="configs/speed.toml",
        help="a TOML file like configs/speed.toml or configs/speed_quick.toml [%(default)s]",
    )
    _add_out(bench)
    bench.add_argument(
        "--devices",
        choices=("all", "cpu", "cuda"),
        default="all",
        help="the devices to measure, of those that JAX finds [%(default)s]",
    )
    bench.add_argument(
        "--compare",
        metavar="FILE",
        nargs="+",
        help="measure nothing, but compare the speed.json of two machines or more",
    )


def _add_out(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", metavar="DIR", help="run folder [runs/<name of CONFIG>]")


def _add_system(command: argparse.ArgumentParser) -> None:
    description = "model, MJCF or URDF file, or path/file.py:attribute"
    command.add_argument("system", metavar="SYSTEM", help=description)
    for option, description in (
        ("start", "a start variable of a model or a coordinate of a system"),
        ("param", "a parameter"),
        ("option", "an argument of the function that makes the model"),
    ):
        command.add_argument(
            f"--{option}", metavar="KEY=VALUE", action="append", default=[], help=description
        )


def _seconds(argument: str) -> float:
    try:
        number = float(argument)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number, but is {argument}")
    return number


def _positive(argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, but is {argument}")
    return int(argument)


def _index(argument: str) -> int:
    if not argument.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number from 0, but is {argument}")
    return int(argument)


def _part(argument: str) -> object:
    from jaxmech.ensemble import BlockRange

    try:
        return BlockRange.parsed(argument)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def described_by(file: str) -> type:
    """The class that describes a kind of configuration, imported when it is needed."""
    module, name = FILES[file]
    described: type = getattr(import_module(module), name)
    return described


def _keys(example: str, file: str) -> Callable[[], str]:
    """The text about a kind of configuration."""

    def closing() -> str:
        from jaxmech.config import key_descriptions

        return example + key_descriptions(described_by(file))

    return closing
