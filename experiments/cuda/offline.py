"""The resources of the kernels of all models on each architecture, without a GPU."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from experiments.cuda import ptxas
from experiments.cuda.cases import case
from experiments.cuda.kernels import Called, kernels
from jaxmech.compiler.backends.cuda import OLDEST, module, ptx
from jaxmech.models import CATALOGUE

STEPS = 100
MODELS = (*CATALOGUE, "four_bar", "chain_10")
WAYS = ("forward", "projection", "gradient", "sensitivities")
TYPES = (np.float64, np.float32)
_KINDS = [*product(MODELS, WAYS, (str(np.dtype(dtype)) for dtype in TYPES))]
Row = dict[str, Any]


def table(
    models: Sequence[str] = MODELS, ways: Sequence[str] = WAYS, known: Sequence[Row] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[list[Row]]:  # fmt: skip
    """Yield the rows of each model, way and type, a kernel each, with processor seconds.

    A kernel that has a known row under its name, which identifies its text, is not compiled again.
    """
    by_name = {row["entry"]: row for row in known}
    for model in models:
        for way in ways:
            for dtype in TYPES:
                tell(f"{model}, {way}, {np.dtype(dtype)}")
                one = case(model, way, 7, STEPS, dtype)
                begun = time.process_time()
                found = kernels(one.batched, *one.args)
                traced = time.process_time() - begun
                about = {
                    "model": model,
                    "coordinates": one.q0.shape[1],
                    "way": way,
                    "type": str(np.dtype(dtype)),
                    "trace_seconds": round(traced, 3),
                    "kernels": len(found),
                }
                rows = []
                for number, called in enumerate(found):
                    entry, _ = module(*called)
                    costs = by_name.get(entry) or {"entry": entry, **measured(called)}
                    rows.append({**costs, **about, "kernel": number})
                yield rows


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Merge rows, ordered by model, way and type; new ones replace old ones of the same kind."""
    replaced = {_kind(row) for row in new}
    kept = [row for row in old if _kind(row) not in replaced]
    return sorted([*kept, *new], key=lambda row: (_KINDS.index(_kind(row)), row["kernel"]))


def _kind(row: Row) -> tuple[str, str, str]:
    return row["model"], row["way"], row["type"]


def missing(rows: Sequence[Row]) -> list[str]:
    """The entries of the whole table that the rows lack."""
    there = set(map(_kind, rows))
    return [", ".join(kind) for kind in _KINDS if kind not in there]


def measured(called: Called) -> Row:
    """Measure the output of LLVM and ptxas for a kernel; the PTX serves all architectures."""
    begun = time.process_time()
    text = ptx(module(*called)[1], OLDEST)
    seconds = time.process_time() - begun
    made = {name: ptxas.assembled(text, name) for name in ptxas.architectures()}
    return {
        "operations": called.kernel.operations,
        "llvm_seconds": round(seconds, 3),
        "lines_of_ptx": text.count("\n"),
        "lines_in_double": text.count(".f64"),
        "architectures": {name: one._asdict() for name, one in made.items()},
    }
