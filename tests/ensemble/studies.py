"""Small studies: a mass on a spring in a file of its own, quick to compile, and what reads it."""

from pathlib import Path

import numpy as np
import zarr

from jaxmech.config.toml import read
from jaxmech.ensemble import Study, replay, run_study
from jaxmech.ensemble.replay import ReplayedTrajectory
from jaxmech.ensemble.store import SUMMARY, mark_of

SPRING = '''
import jax.numpy as jnp
import jaxmech as jm


def lagrangian(q, v, t, p):
    return 0.5 * p["m"] * v @ v - 0.5 * p["k"] * q @ q


def burst(q, v, t, p):
    """Runs away in finite time where the kick is above the limit."""
    return jnp.where(p["kick"] > p["limit"], 1e9 * (1 + q**4), 0.0)


spring = jm.System(lagrangian, force=burst, coordinates=("x",))
number = 3


def springs(count: int = 2):
    if count < 1:
        raise ValueError("there must be a spring")
    return jm.System(lagrangian, coordinates=tuple(f"x{i}" for i in range(count)))


def place(q, v, t, p):
    return q[0]
'''

STUDY = """
model = "spring.py:spring"
size = 20
seed = 3
block = 4

[times]
end = 1.0
saves = 5

[steps]
per_save = 8

[coordinates]
x = { distribution = "uniform", low = -1.0, high = 1.0 }

[parameters]
m = 1.0
k = { distribution = "normal", mean = 10.0, sd = 0.1, relative = true }
kick = { distribution = "uniform", low = 0.0, high = 1.0 }
limit = 2.0
"""

CAR = """
import jaxmech as jm


def lagrangian(q, v, t, p):
    return 0.5 * p["m"] * v @ v


def force(q, v, t, p):
    return -p["k"] * (q - p["road"](t)) - p["c"] * v


car = jm.System(lagrangian, force=force, coordinates=("height",))
"""
PENDULUM = """
model = "pendulum"
size = 10
block = 8

[times]
end = 0.5
saves = 6

[steps]
per_save = 10

[start]
theta = { distribution = "uniform", low = -2.0, high = 2.0 }

[sampling]
design = "sobol"
"""


# A quantity of the user's own, and statistics of both kinds.
OBSERVED = (
    STUDY
    + """
[observe]
last = { function = "spring.py:place", keep = "final" }

[statistics]
x = { statistic = "moments", of = "x" }
right = { statistic = "probability", of = "last", above = 0.0 }
"""
)


def write_study(folder: Path, text: str = STUDY, name: str = "study.toml") -> Path:
    """Write a configuration next to the file of the spring."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spring.py").write_text(SPRING)
    config = folder / name
    config.write_text(text)
    return config


def computed(folder: Path, text: str = STUDY, out: str = "run", **files: str) -> Path:
    """The run folder of a study, computed in this process, with Python files beside it by name."""
    config = write_study(folder, text)
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    run_study(read(config, Study), folder / out, folder=folder)
    return folder / out


def replayed(run: Path, index: int, folder: Path | None = None) -> ReplayedTrajectory:
    """One trajectory of a run of `computed`, with the configuration beside its folder."""
    folder = folder or run.parent
    return replay(str(run), index, read(folder / "study.toml", Study), folder)


def arrays(run: Path) -> dict[str, np.ndarray]:
    """All arrays of a run folder."""
    group = zarr.open_group(run / "results.zarr", mode="r")
    return {name: np.asarray(array[...]) for name, array in group.arrays()}


def same_bits(run: Path, other: Path) -> bool:
    """Whether two run folders hold the same arrays, NaN included."""
    first, second = arrays(run), arrays(other)
    return first.keys() == second.keys() and all(
        first[k].dtype == second[k].dtype and first[k].tobytes() == second[k].tobytes()
        for k in first
        if k != "coordinate"
    )


def same_results(one: Path, other: Path) -> bool:
    """Whether arrays, statistics and summary of two runs have the same bytes."""
    files = ("statistics.npz", "summary.json", "summary.txt")
    return same_bits(one, other) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in files
    )


def killed(run: Path, *blocks: int) -> None:
    """Turn a finished run into one that was killed before these blocks were done."""
    for name in SUMMARY:
        (run / name).unlink(missing_ok=True)
    for block in blocks:
        mark_of(run, block).unlink()
