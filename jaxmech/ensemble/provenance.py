"""What the results of a study come from: digests of the functions and of the numbers drawn."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxmech.config.digest import digest, system_digests
from jaxmech.config.environment import environment
from jaxmech.config.load import Subject
from jaxmech.ensemble.draws import Variable, stored_name
from jaxmech.ensemble.kernel import BlockProgram


def origin(subject: Subject, kernel: BlockProgram, variables: Iterable[Variable]) -> dict[str, Any]:
    """The content of `environment.json` but the time: facts, digests of functions and draws."""
    varying, same = kernel.inputs(0)
    one = {
        section: {name: values[0] for name, values in varying[section].items()} | same[section]
        for section in same
    }
    model = subject.model
    params = {**(model.params if model else {}), **one["parameters"]}
    functions = system_digests(subject.system, params, kernel.dtype)
    if model:
        functions["start"] = digest(model.state, one["start"], params)
    draws = {stored_name(variable): _of_array(variable.values) for variable in variables}
    return {**environment(subject), "functions": functions, "draws": draws}


def _of_array(values: np.ndarray) -> str:
    code = hashlib.sha256(f"{values.dtype} {values.shape}".encode())
    code.update(np.ascontiguousarray(values).tobytes())
    return code.hexdigest()
