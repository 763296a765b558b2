"""`jaxmech bench`: the benchmark of a clone, in a process of its own."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from jaxmech.config.errors import InputError


def measured(arguments: Namespace) -> int:
    """The exit code of the benchmark, a process of the clone."""
    clone = _clone(Path(arguments.config))
    path = os.pathsep.join(filter(None, [str(clone), os.environ.get("PYTHONPATH")]))
    options = [arguments.config, "--devices", arguments.devices]
    options += ["--out", arguments.out] if arguments.out else []
    options += ["--compare", *arguments.compare] if arguments.compare else []
    command = [sys.executable, "-P", "-m", "experiments.speed", *options]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:  # it reaches the child too, which writes what is measured
                continue


def _clone(config: Path) -> Path:
    """The clone that a configuration lies in, or else the working directory."""
    for folder in (config.resolve().parent.parent, Path.cwd()):
        if (folder / "experiments" / "speed" / "__main__.py").is_file():
            return folder
    raise InputError(
        "the benchmark belongs to a clone of the repository, but there is no experiments/speed "
        f"beside the folder of {config}, nor here; go into a clone, or name its configs/speed.toml"
    )
