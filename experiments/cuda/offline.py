"""The resources of the kernels of all models on each architecture, without a GPU."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from experiments.cuda import ptxas
from experiments.cuda.cases import case
from experiments.cuda.kernels import Called, kernels
from experiments.measuring import timed
from jaxmech.compiler.backends.cuda import OLDEST, module, ptx
from jaxmech.models import CATALOGUE

STEPS = 100
MODELS = (*CATALOGUE, "four_bar", "chain_10")
WAYS = ("forward", "projection", "gradient", "sensitivities")
TYPES = (np.float64, np.float32)
Row = dict[str, Any]


def table(models: Sequence[str], tell: Callable[[str], None]) -> Iterator[Row]:
    """Yield the rows of models, a kernel each, with processor seconds."""
    for model, way, dtype in product(models, WAYS, TYPES):
        tell(f"{model}, {way}, {np.dtype(dtype)}")
        batch = case(model, way, 7, STEPS, dtype)
        traced = timed(lambda: kernels(batch.batched, *batch.args), 0)  # noqa: B023
        for number, called in enumerate(traced.result):
            yield {
                "entry": module(*called)[0],
                **measured(called),
                "model": model,
                "coordinates": batch.q0.shape[1],
                "way": way,
                "type": str(np.dtype(dtype)),
                "trace_seconds": round(traced.first, 3),
                "kernels": len(traced.result),
                "kernel": number,
            }


def measured(called: Called) -> Row:
    """Measure the output of LLVM and ptxas for a kernel; the PTX serves all architectures."""
    seconds, _, text = timed(lambda: ptx(module(*called)[1], OLDEST), 0)
    made = {name: ptxas.assembled(text, name) for name in ptxas.architectures()}
    return {
        "operations": called.kernel.operations,
        "llvm_seconds": round(seconds, 3),
        "lines_of_ptx": text.count("\n"),
        "lines_in_double": text.count(".f64"),
        "architectures": {name: one._asdict() for name, one in made.items()},
    }
