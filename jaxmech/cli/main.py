"""The command line: every command is a function, and its signature and docstring are its help.

Each command imports what it needs, so that `--help` does not wait for all of it.
"""

import gc
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import requires, version
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.validators import Number
from packaging.requirements import Requirement

from jaxmech.config.errors import InputError, StoppedError

if TYPE_CHECKING:
    from jaxmech.ensemble import Study

DONE, BAD_INPUT, INTERRUPTED, TERMINATED = 0, 2, 130, 143
UNSATISFACTORY = 1  # too many failures, not converged, or serious findings
_RESUMED = ("ensemble", "failure")  # commands that continue where they were interrupted

app = App(
    "jaxmech",
    help="""Constrained mechanics in batches: Monte Carlo studies and fits from a file.

For example, in a clone:

    jaxmech ensemble configs/double_pendulum.toml
    jaxmech fit configs/fit_pendulum.toml
    jaxmech check my_robot.py:arm

`jaxmech COMMAND --help` says what a command does, with all keys of its files.
""",
    version=lambda: f"jaxmech {version('jaxmech')}",
    version_flags="--version",
    help_format="markdown",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

Config = Annotated[Path, Parameter(help="configuration, a TOML file")]
Run = Annotated[Path, Parameter(help="run folder")]
Out = Annotated[Path | None, Parameter(help="run folder; by default that of CONFIG's name in runs")]
Where = Annotated[
    str | None, Parameter(help="workers of Dask: local:4, tcp://host:8786 or file:scheduler.json")
]
Origin = Annotated[
    Path | None,
    Parameter("--config", help="configuration of the run, where it names files of its own"),
]
System = Annotated[str, Parameter(help="model, MJCF or URDF file, or path/file.py:attribute")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command with the given arguments, by default those of the process.

    Returns:
        The exit code: 0 done; 1 too many failed trajectories, a fit that has not converged or
        serious findings; 2 bad input, or files that cannot be read or written; 130 interrupted;
        143 stopped by SIGTERM.
    """
    if argv is None:  # the process is this command: what is imported stays, so that the
        gc.freeze()  # garbage collector need not look at it again and again
    words = sys.argv[1:] if argv is None else [*argv]
    try:
        code = app(words, exit_on_error=False, print_error=False)
        if {"-h", "--help"} & {*words} and words[0] in ("ensemble", "fit"):
            from jaxmech.cli.fit import FitStudy
            from jaxmech.config import key_descriptions
            from jaxmech.ensemble import Study

            kind = Study if words[0] == "ensemble" else FitStudy
            print(f"keys of a configuration\n{key_descriptions(kind)}")
        sys.stdout.flush()
        return code or DONE
    except CycloptsError as error:
        tell(f"{error} (jaxmech --help)")
        return BAD_INPUT
    except InputError as error:
        tell(str(error))
        return BAD_INPUT
    except (KeyboardInterrupt, StoppedError) as error:
        stopped = isinstance(error, StoppedError)
        if words[0] in _RESUMED:
            why = "stopped by SIGTERM" if stopped else "interrupted"
            again = shlex.join(["jaxmech", *words])
            tell(f"{why}; finished work is kept; continue with: {again}")
        return TERMINATED if stopped else INTERRUPTED
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # so rich ends a process, within --help
            _silence()
            return DONE
        tell(f"a function of the model has ended the process (exit code {error.code}); correct it")
        return BAD_INPUT
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


def tell(message: str) -> None:
    """Write a message to the standard error."""
    sys.stderr.write(f"jaxmech: {message}\n")
    sys.stderr.flush()


@contextmanager
def graceful() -> Iterator[Callable[[], bool]]:
    """Yield a function that reports whether SIGTERM was received; a second one ends the process."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only it receives signals
        yield lambda: False
        return

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        received.append(number)
        tell("SIGTERM: stopping after the current block")
        signal.signal(signal.SIGTERM, previous)

    previous = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    signal.signal(signal.SIGTERM, on_sigterm)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _silence() -> None:
    """Discard pending output, if it cannot be printed."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command
def new(folder: Path, /) -> None:
    """Write a study that runs into a new folder, to start from.

    It holds `model.py` with a system, `study.toml` with what is drawn, observed and stored, and
    `README.md` with the commands. It runs as it is:

        jaxmech new swing
        cd swing
        jaxmech ensemble study.toml --out runs/first

    Args:
        folder: the folder to make.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already; give the name of a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted((files("jaxmech.cli") / "template").iterdir(), key=lambda x: x.name):
        text = source.read_text(encoding="utf-8").replace("{name}", folder.resolve().name)
        target = folder / source.name.removesuffix(".txt")  # model.py.txt is no module of ours
        target.write_text(text, encoding="utf-8")
        print(target)
    location = shlex.quote(str(folder))
    print(f"Next: cd {location} && jaxmech ensemble study.toml --out runs/first")


@app.command
def ensemble(config: Config, /, *, out: Out = None, cluster: Where = None) -> int:
    """Run a Monte Carlo study, or continue it where it was interrupted (even by kill -9).

    The results are bit-identical either way. The run folder holds `results.zarr`
    (read it with xarray.open_zarr), `config.toml`, `environment.json`, `summary.json` and
    `summary.txt`; `jaxmech report RUN` makes a page with pictures of it.

    SIGTERM stops after the current block.

    An example of a configuration:

        model = "double_pendulum"        # or "path/file.py:system", relative to this file
        size = 4096
        [times]
        end = 10.0
        saves = 201
        [steps]
        per_save = 25                    # the step is 10 s / 200 / 25 = 2 ms
        [start]
        theta1 = { distribution = "uniform", low = -3.0, high = 3.0 }
        omega1 = 0.5                     # a plain number is a fixed value
        [parameters]                     # 2 % around the model's value
        m1 = { distribution = "normal", sd = 0.02, relative = true }

    exit code: 0 done; 1 more failed trajectories than `failed_allowed`; 2 bad input, or a file that
    cannot be read or written; 130 interrupted; 143 stopped by SIGTERM
    """
    from jaxmech.config import located, read
    from jaxmech.ensemble import Study, as_table, failed, run_study

    study = read(config, Study)
    _use(study.precision)
    out, start = out or Path("runs") / config.stem, time.perf_counter()
    with located(config), graceful() as stop:
        summary = run_study(
            study, out, folder=config.parent, progress=True, tell=tell, stop=stop, client=cluster
        )
    seconds = f"{time.perf_counter() - start:.1f} s"
    print(f"{as_table(summary)}\n{seconds}; results in {out / 'results.zarr'}")
    return DONE if failed(summary) <= study.failed_allowed * study.size else UNSATISFACTORY


@app.command
def failure(config: Config, /, *, out: Out = None) -> int:
    """Compute the probability of a rare failure, down to 1e-9.

    The failure is that of the table [failure] of a study, whose keys are listed by `jaxmech
    ensemble --help`. The run folder, by default runs/CONFIG_failure, holds `failure.txt` and
    `failure.json`.

        [failure]
        of = "swing"             # an observed quantity, a coordinate, or an event
        above = 0.52

    exit code: 0 done; 1 with warnings; 2 bad input
    """
    from jaxmech.config import located, read
    from jaxmech.ensemble import Study, failure_probability

    study = read(config, Study)
    _use(study.precision)
    out, start = out or Path("runs") / f"{config.stem}_failure", time.perf_counter()
    with located(config), graceful() as stop:
        result = failure_probability(study, out, folder=config.parent, stop=stop)
    print(f"{result}\n{time.perf_counter() - start:.1f} s; results in {out}")
    return UNSATISFACTORY if result.doubts else DONE


@app.command
def fit(config: Config, /, *, out: Out = None, data: Path | None = None) -> int:
    """Fit the parameters of a model to recordings in a .npz, .csv or .parquet file.

    The validation recordings are used for the report alone. The run folder holds `report.txt`,
    `fit.npz`, `config.toml` and `environment.json`; a finished fit is only shown again, and
    `jaxmech report RUN` makes a page of it.

    An example of a configuration:

        model = "fit_pendulum.py:pendulum"     # an Identifiable in a file next to this one
        [data]
        file = "fit_pendulum.csv"
        time = "t [s]"
        observed = ["theta [rad]"]             # also the initial coordinates
        v0 = ["omega [rad/s]"]
        recording = "swing"                    # the column that names the recording
        validation = ["5", "6"]
        [parameters]
        free = ["gravity", "viscous"]          # by default all of the model
        bounds = { viscous = [0, inf] }

    exit code: 0 done; 1 not converged, or a recording cannot be simulated; 2 bad input, or a file
    that cannot be read or written; 130 interrupted

    Args:
        data: FILE in place of the `data.file` of CONFIG.
    """
    from jaxmech.cli.fit import FitStudy, run_fit
    from jaxmech.config import located, read

    _use("float64")
    study = read(config, FitStudy)
    if data:
        study = replace(study, data=replace(study.data, file=str(data.resolve())))
    out, start = out or Path("runs") / config.stem, time.perf_counter()
    with located(config):
        outcome = run_fit(study, out, folder=config.parent, progress=sys.stderr.isatty())
    print(outcome)
    print(f"{time.perf_counter() - start:.1f} s; report in {out}")
    return DONE if outcome.succeeded else UNSATISFACTORY


@app.command
def replay(
    run: Run, index: Annotated[int, Parameter(validator=Number(gte=0))], /, *, config: Origin = None
) -> int:
    """Compute one trajectory of a study again, alone, from the seed and its number.

    Print its status, when and where it failed, the values drawn for it, and whether it is
    bit-identical to the stored one. The Python files in the run folder are not executed: if the
    model is a file, name the configuration of the run, `--config CONFIG`.

    exit code: 0 as stored, or not stored; 1 different from what is stored; 2 bad input

    Args:
        index: its number, from 0.
    """
    from jaxmech.ensemble import replay as replayed

    _use("float64")
    trajectory = replayed(run, index, *_named_study(config))
    print(trajectory)
    return DONE if all(trajectory.compared.values()) else UNSATISFACTORY


@app.command
def report(run: Run, /, *, config: Origin = None, out: Path | None = None) -> None:
    """Write one self-contained page about a study or a fit.

    It holds numbers with their intervals, tables, pictures and configuration; of a study also
    animated trajectories, and failures, each with the command that replays it. The Python files in
    the run folder are not executed: a model in a file is animated only with `--config CONFIG`.

    Args:
        out: the page; by default RUN/report.html.
    """
    from jaxmech.config import RunFolder

    _use("float64")
    out = out or run / "report.html"
    if RunFolder(run).command == "fit":
        from jaxmech.cli.fit import stored
        from jaxmech.cli.report import write_fit_report

        fitted, title = stored(run)
        print(write_fit_report(fitted, out, title))
        return
    from jaxmech.cli.report import write_report

    print(write_report(run, out, *_named_study(config), tell))


@app.command
def models(name: str | None = None, /) -> None:
    """List the ready models, or show one.

    Args:
        name: a model of the list.
    """
    from jaxmech.cli.resolve import page, table

    print(page(name) if name else table())


@app.command
def check(system: System, /, *, fast: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Check a system before trusting it.

    Print degrees of freedom, redundant and contradictory constraints by name, singular poses and
    masses, whether the initial state is consistent and how to make it so, functions or derivatives
    that are non-finite, unused parameters, and gradients against finite differences. Every finding
    comes with a remedy.

    The attribute of a Python file is a System, a Model, a Mechanism, a Robot, or a function that
    returns one. A Model has a state, and the coordinates of a Mechanism are zero unless its file
    has `q0` and `v0`; for a System, the file defines `q0`, and may define `v0` (at rest), `t0` (0)
    and `params` (None).

    exit code: 0 nothing serious; 1 something makes results wrong; 2 bad input

    Args:
        fast: without gradients, which take longest.
    """
    import numpy as np

    from jaxmech.analysis import check_gradients, structure
    from jaxmech.cli.resolve import load_state
    from jaxmech.integrate import FixedSteps

    _use("float64")
    loaded, (q, v, t, params) = load_state(system)
    found = structure(loaded, q, v, t, params)
    print(found)
    if found.serious:
        return UNSATISFACTORY
    if fast:
        return DONE
    if loaded.unilateral:  # at rest in contact differences of a short run show nothing
        tell("with gaps or dry friction use check_gradients, for a motion that you choose")
        return DONE
    tell("compiling a short run and its gradients; --fast skips them")
    ts = float(t) + np.array([0.0, 8e-3])  # eight steps of 1 ms
    gradients = check_gradients(loaded, q, v, ts, params, steps=FixedSteps(8))
    print(gradients)
    return DONE if gradients.ok else UNSATISFACTORY


@app.command
def audit(
    file: Path, /, *, seconds: Annotated[float, Parameter(validator=Number(gt=0))] = 1.0
) -> int:
    """Examine an MJCF or URDF file.

    Print degrees of freedom, redundant loops by name, what of the file is not used, and how far the
    soft loops and limits of MuJoCo deviate from the rigid motion, from the first keyframe or the
    reference pose, without contacts. It needs pip install mujoco.

    exit code: 0 nothing serious; 1 something in the file is wrong; 2 bad input

    Args:
        file: an .xml or .urdf file.
        seconds: time over which loops are compared.
    """
    from jaxmech.cli.audit import audit as examined

    _use("float64")
    try:
        found = examined(file, seconds)
    except (ImportError, ValueError) as error:
        raise InputError(str(error)) from error
    print(found)
    return UNSATISFACTORY if found.serious else DONE


@app.command
def bench(
    config: Path = Path("configs/speed.toml"), /, *, out: Out = None,
    devices: Literal["all", "cpu", "cuda"] = "all",
) -> int:  # fmt: skip
    """Measure the speed of batches, in a clone, beside other methods for the same trajectories.

    On every device, with the cost of gradients. The run folder holds `speed.md` and
    `speed.json`; Ctrl-C keeps the measurements up to then. The benchmark is the folder
    `experiments/speed` of a clone. MuJoCo and diffrax are included if they are installed:
    pip install -e '.[bench]'

    Args:
        config: a TOML file like configs/speed.toml or configs/speed_quick.toml.
        devices: the devices to measure, of those that JAX finds.
    """
    check_jax(version("jax"))
    if not Path("experiments/speed").is_dir():
        raise InputError(
            "the benchmark is experiments/speed of the repository, which is not here; call "
            "`jaxmech bench` in a clone"
        )
    options = [str(config), "--devices", devices, *(["--out", str(out)] if out else [])]
    os.execv(sys.executable, [sys.executable, "-m", "experiments.speed", *options])


@app.command
def doctor() -> int:
    """Examine this installation, and test it.

    Print versions, devices and how batches run on each, and where native code is stored; then
    compute a small motion, in batches and with gradients, and compare it with what is known of it.

    exit code: 0 all is well; 1 a self-test fails; 2 a release of jax that is known
    to give wrong numbers
    """
    from jaxmech.cli.doctor import facts, failed_tests

    print("\n".join(facts()))
    _use("float64")
    faults = [*failed_tests()]
    print("\n".join(faults) or "  all is well")
    return UNSATISFACTORY if faults else DONE


def _named_study(config: Path | None) -> "tuple[Study | None, Path]":
    """The study of a configuration that an option names, and its folder."""
    from jaxmech.config import read
    from jaxmech.ensemble import Study

    return (read(config, Study), config.parent) if config else (None, Path())


def _use(precision: str) -> None:
    """Compute in a precision, with a release of jax that is not known to be wrong."""
    import jax

    check_jax(version("jax"))
    if precision == "float64":
        jax.config.update("jax_enable_x64", True)


def check_jax(release: str) -> None:
    """Refuse to compute with a release of jax that the requirements of this package exclude."""
    required = map(Requirement, requires("jaxmech") or ())
    allowed = next(x for x in required if x.name == "jax" and x.marker is None)
    if not allowed.specifier.contains(release, prereleases=True):
        raise InputError(
            f"jax {release} is none of {allowed}; others give wrong numbers on the CPU, can hang, "
            "or are not tested (docs/limits.md): install one of these"
        )
