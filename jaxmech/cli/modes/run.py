"""`run_modes`: run a study of eigenvalues in its folder.

config.toml        the resolved configuration
environment.json   versions and device
model.py           copy of the user's model file (model.xml, model.urdf)
blocks/            computed blocks, until the study is complete
members.npz        draws, equilibria, eigenvalues and verdicts of all members
summary.txt, .json counts, probability of instability, quantiles
pictures/          eigenvalues in the complex plane, verdicts over each scattered number
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from jaxmech.cli.modes.members import Members, members
from jaxmech.cli.modes.pictures import draw_members
from jaxmech.cli.modes.study import ModesStudy
from jaxmech.cli.modes.summary import as_table, summarize
from jaxmech.config.environment import environment, environment_json
from jaxmech.config.load import copy_of, load
from jaxmech.config.plain import plain
from jaxmech.config.run_folder import npz, opened, require_same_config, write_whole
from jaxmech.config.trust import mark_written_here
from jaxmech.ensemble.draws import stored_name
from jaxmech.ensemble.summary import as_json

MEMBERS, BLOCKS = "members.npz", "blocks"


def run_modes(
    study: ModesStudy, out: Path, *, folder: Path = Path(), progress: bool = False
) -> dict[str, Any]:
    """Run a study in its folder, or continue from its stored blocks, and return its summary."""
    subject = load(study.model, study.model_options, folder, study.parameters)
    copy, name = copy_of(study.model, subject.source)
    resolved = plain(replace(study, model=name))
    with opened(out):
        if (out / "config.toml").is_file():
            require_same_config(out, resolved, ())
        sample = members(study, folder, progress=progress, kept=out / BLOCKS)
        summary = summarize(study, sample)
        if subject.source:
            shutil.copyfile(subject.source, out / copy)
        write_whole(out / "environment.json", environment_json(environment(subject)))
        write_whole(out / "config.toml", tomli_w.dumps(resolved))
        mark_written_here(out)
        _store(sample, out / MEMBERS)
        write_whole(out / "summary.json", as_json(summary))
        write_whole(out / "summary.txt", as_table(summary))
        draw_members(sample, summary, out / "pictures")
        shutil.rmtree(out / BLOCKS, ignore_errors=True)
    return summary


def _store(sample: Members, file: Path) -> None:
    """Write all arrays."""
    names = ("status", "stability", "residual", "q", "v", "eigenvalues", "frequencies", "growth")
    arrays = {name: getattr(sample, name) for name in names}
    arrays |= {
        stored_name(variable): variable.values for variable in sample.variables if variable.varies
    }
    arrays = {"coordinates": np.array(sample.coordinates), **arrays}
    write_whole(file, npz(arrays, compressed=True))
