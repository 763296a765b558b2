"""Usage: python -m experiments.measured_pendulum.convergence CONFIG.

Fits every law of a configuration to all training segments, with the recorded initial states and
with free ones, which are the default, and prints how each fit ended. Exits with 1 unless all of
them have converged. The error is the mean over the segments, from the initial states of the fit.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.measured_pendulum.pendulums import rig
from experiments.measured_pendulum.study import LAWS, MRAD
from experiments.measuring import table_head, table_row
from jaxmech.cli.fit import FitStudy
from jaxmech.config.errors import InputError
from jaxmech.config.toml import read
from jaxmech.identify import Fit, Recording, fit, read_table

HEAD = "law", "initial states", "unknowns", "RMS error [mrad]", "evaluations", "converged"


def fits(
    name: str, laws: Iterable[str], recordings: tuple[Recording, ...], settings: Mapping[str, Any]
) -> Iterator[tuple[str, str, Fit]]:
    """Fit the laws one after the other, each with both kinds of initial states."""
    for law in laws:
        for states in ("fixed", "free"):
            subject = rig(name, law).subject
            yield law, states, fit(subject, recordings, initial_states=states, **settings)


def main(config: Path) -> int:
    """Print the table, and return the exit code."""
    study = read(config, FitStudy)
    name = study.model.rpartition(":")[2]
    settings = {"optimizer": study.optimizer, "steps": study.steps}
    # recorded starts get no weight beside samples of unknown noise
    recordings = read_table(replace(study.data, start_sd=None), config.parent).train
    print(table_head(HEAD))
    missed = 0
    for law, states, found in fits(name, LAWS[name], recordings, settings):
        ended = f"{'yes' if found.converged else 'NO'}: {found.optimization.reason}"
        error, evaluations = f"{MRAD * found.errors.mean():.3f}", found.optimization.evaluations
        print(table_row([law, states, found.unknowns, error, evaluations, ended]), flush=True)
        missed += not found.converged
    return int(missed > 0)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(Path(sys.argv[1])))
    except InputError as error:
        sys.exit(str(error))
