"""What the kernels of all models need on each architecture, without a GPU."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.cuda import ptxas
from experiments.cuda.cases import case
from experiments.cuda.kernels import Called, kernels
from jaxmech.compiler.backends.cuda.codegen import cuda_program
from jaxmech.models import CATALOGUE

STEPS = 100
MODELS = (*CATALOGUE, "four_bar", "chain_10")
WAYS = ("forward", "projection", "gradient", "sensitivities")
TYPES = (np.float64, np.float32)
Row = dict[str, Any]


def table(
    models: Sequence[str] = MODELS, ways: Sequence[str] = WAYS,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Row]:  # fmt: skip
    """A row for each kernel of each model, way and type; seconds are those of the processor."""
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
                    "trace_seconds": traced,
                    "kernels": len(found),
                }
                for number, called in enumerate(found):
                    yield {**about, "kernel": number, **measured(called)}


def measured(called: Called) -> Row:
    """What LLVM and ptxas make of a kernel."""
    begun = time.process_time()
    program = cuda_program(*called, size=2)
    seconds = time.process_time() - begun
    made = {name: ptxas.assembled(program.ptx, name) for name in ptxas.architectures()}
    return {
        "operations": called.kernel.operations,
        "llvm_seconds": seconds,
        "lines_of_ptx": program.ptx.count("\n"),
        "lines_in_double": program.ptx.count(".f64"),
        "architectures": {name: one._asdict() for name, one in made.items()},
    }
