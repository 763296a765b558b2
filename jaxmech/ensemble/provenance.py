"""Origins of the results of a study: digests of the functions and of the drawn numbers."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config import Subject, digest, environment, system_digests
from jaxmech.ensemble.draws import Sampler, stored_name
from jaxmech.ensemble.kernel import BlockProgram
from jaxmech.ensemble.members.base import Tree, first_of, params_of
from jaxmech.ensemble.statistics.custom import Custom, Reduction
from jaxmech.ensemble.study import Study
from jaxmech.utils.digests import arrays_digest, sha256

_FIRST = 1024  # members whose draws are digested, whatever the size of a block


def origin(kernel: BlockProgram) -> dict[str, Any]:
    """The content of `environment.json` but the time: facts, digests of functions and draws."""
    inputs, sampler, subject = kernel.inputs(0), kernel.sampler, kernel.member.subject
    functions, params = function_digests(subject, inputs.varying, inputs.shared, kernel.dtype)
    functions |= _observed(kernel.member.study, subject, params, kernel.dtype)
    # Some at the beginning and the last member: another seed, size or rule changes one of them, and
    # all draws of a large study would take long.
    last = sampler.size - 1
    draws = draw_digests(sampler, (0, min(_FIRST, sampler.size)), (last, sampler.size))
    notes = {name: list(words) for name, words in subject.inputs.notes.items() if words}
    facts = {
        **environment(subject),
        "functions": functions,
        "draws": {**draws, **subject.inputs.digests},
        "first_draws": draw_digests(sampler, (0, 1)),  # studies of other sizes may share them
    }
    return facts | ({"inputs": notes} if notes else {})


def draw_digests(sampler: Sampler, *ranges: tuple[int, int]) -> dict[str, str]:
    """The digest of each variable in some ranges of members, and of their weights."""
    parts = [sampler.rows(*part) for part in ranges]
    draws = {
        stored_name(same[0]): arrays_digest(*(variable.values for variable in same))
        for same in zip(*parts, strict=True)
    }
    if sampler.weighted:
        draws["weights"] = arrays_digest(*(sampler.weights(*part) for part in ranges))
    return draws


def function_digests(
    subject: Subject, varying: Tree, shared: Tree, dtype: Any
) -> tuple[dict[str, str], dict[str, Any]]:
    """The digests of the functions of a model at the first of some draws, and its parameters."""
    inputs = first_of(varying, shared)
    params = params_of(subject, inputs)
    digests = system_digests(subject.system, params, dtype)
    if subject.model:
        digests["start"] = digest(subject.model.state, inputs["start"], params)
    return digests, params


def _observed(study: Study, subject: Subject, params: Any, dtype: Any) -> dict[str, str]:
    q, t = np.zeros((2, subject.system.n), dtype), np.zeros(2, dtype)
    v = np.zeros((2, subject.system.n_velocities), dtype)
    digests = {}
    for name, quantity in study.observe.items():
        if quantity.needs_reactions:
            digests[f"observe {name}"] = _of_file(quantity.function)
        else:
            observed = quantity.of(subject.system)
            digests[f"observe {name}"] = digest(
                lambda q, v, t, p, observed=observed: observed.along(q, v, t, p, None),
                q, v, t, params,
            )  # fmt: skip
    for name, event in study.events.items():
        for suffix, fn in (("", event.function), (" jump", event.jump)):
            if callable(fn):
                digests[f"event {name}{suffix}"] = _of_file(fn)
    for name, statistic in study.statistics.items():
        if isinstance(statistic, Custom) and isinstance(statistic.functions, Reduction):
            files = map(_of_file, filter(None, statistic.functions))
            digests[f"statistic {name}"] = sha256(*files)
    return digests


def _of_file(fn: Any) -> str:
    """The digest of the file of a function that cannot be traced yet, or of its code alone."""
    try:
        return sha256(Path(inspect.getfile(fn)).read_text(encoding="utf-8"))
    except (TypeError, OSError):
        code = getattr(fn, "__code__", None)
        return sha256(repr(code and (code.co_code, code.co_consts, code.co_names)))
