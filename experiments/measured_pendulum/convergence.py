"""Usage: python -m experiments.measured_pendulum.convergence CONFIG.

Fits every law of a configuration to all training segments, with the recorded initial states and
with free ones, which are the default, and prints how each fit ended. Exits with 1 unless all of
them have converged.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from experiments.measured_pendulum.study import LAWS, MRAD, PENDULUMS
from jaxmech.cli.fit import FitStudy
from jaxmech.config.frames import TableError
from jaxmech.config.toml import ConfigError, read
from jaxmech.identify import Fit, Identifiable, Recording, fit, read_table
from jaxmech.identify.identifiable import InitialStates

STATES: tuple[InitialStates, ...] = ("fixed", "free")


@dataclass(frozen=True)
class End:
    """How the fit of a law ended."""

    law: str
    initial_states: InitialStates
    converged: bool
    evaluations: int
    unknowns: int
    rms: float  # mean over the segments, from the initial states of the fit [rad]
    reason: str


def ends(
    laws: Mapping[str, Identifiable], recordings: tuple[Recording, ...], settings: Mapping[str, Any]
) -> Iterator[End]:
    """Fit the laws one after the other, with the settings, but each kind of initial states."""
    for name, subject in laws.items():
        for states in STATES:
            found = fit(subject, recordings, initial_states=states, **settings)
            yield _end(name, states, found)


def _end(law: str, states: InitialStates, found: Fit) -> End:
    return End(
        law, states, found.converged, found.optimization.evaluations, found.unknowns,
        float(found.errors.mean()), found.optimization.reason,
    )  # fmt: skip


def row(end: End) -> str:
    """Format a row of the table."""
    return (
        f"| {end.law} | {end.initial_states} | {end.unknowns} | {MRAD * end.rms:.3f} "
        f"| {end.evaluations} | {'yes' if end.converged else 'NO'}: {end.reason} |"
    )


def main(config: Path) -> int:
    """Print the table, and return the exit code."""
    study = read(config, FitStudy)
    name = study.model.rpartition(":")[2]
    laws = {law: PENDULUMS[name].rig(law).subject for law in LAWS[name]}
    settings = {"optimizer": study.optimizer, "steps": study.steps}
    # recorded starts get no weight beside samples of unknown noise
    recordings = read_table(replace(study.data, start_sd=None), config.parent).train
    print("| law | initial states | unknowns | RMS error [mrad] | evaluations | converged |")
    print("|---|---|---|---|---|---|")
    missed = 0
    for end in ends(laws, recordings, settings):
        print(row(end), flush=True)
        missed += not end.converged
    return int(missed > 0)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(Path(sys.argv[1])))
    except (ConfigError, TableError) as error:
        sys.exit(str(error))
