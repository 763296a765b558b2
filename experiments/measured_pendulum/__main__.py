"""Usage: python -m experiments.measured_pendulum CONFIG [RUN FOLDER].

For example configs/measured_pendulum_double.toml, which is a configuration of `jaxmech fit`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax

from experiments.measured_pendulum.study import Comparison, laws, run, table
from jaxmech.config.errors import InputError
from jaxmech.config.toml import located


def main(config: Path, out: Path | None = None, **options: Any) -> None:
    """Run the study of a configuration file and write the run folder."""
    out = Path("runs") / config.stem if out is None else out
    out.mkdir(parents=True, exist_ok=True)
    with located(config):
        found = run(config, out, progress=sys.stderr.isatty(), **options)
    print(laws(found), found.outcomes["angles"], table(found), sep="\n\n")
    print(f"\nWritten to {out}/: angles/, bodies/, {', '.join(write(found, out))}")


def write(found: Comparison, out: Path) -> list[str]:
    """Write the comparison with the published estimate, and return the names of its files."""
    errors = {
        who: {part: values.tolist() for part, values in parts.items()}
        for who, parts in found.errors.items()
    }
    (out / "errors.json").write_text(json.dumps(errors, indent=1) + "\n", encoding="utf-8")
    (out / "errors.md").write_text(table(found) + "\n", encoding="utf-8")
    return ["errors.json", "errors.md"]


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    try:
        main(*(Path(argument) for argument in sys.argv[1:]))
    except InputError as error:
        sys.exit(str(error))
