"""The number of a file as a variable of a study, which is drawn like others."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxmech.config import SubjectInputs
from jaxmech.config.errors import Problem, refuse_all
from jaxmech.ensemble.distributions import Discrete, Distribution, Fixed, FromTable
from jaxmech.ensemble.recorded.settings import Inputs, numbers_of


def number_rules(
    inputs: Inputs, parameters: Mapping[str, Distribution], taken: Iterable[str]
) -> dict[str, Distribution]:
    """The distribution of each number: as given, or each file of the inputs equally likely.

    Args:
        inputs: with their files as tuples.
        parameters: the given distributions.
        taken: names of parameters of the model, which are no numbers of files.

    Raises:
        StudyError: if the values of a number differ from those of the files, or inputs do not
            agree.
    """
    counts = _counts(inputs, {*taken} - {*inputs})
    rules = {name: parameters.get(name, _uniform(count)) for name, count in counts.items()}
    refuse_all(
        Problem(("parameters", name), message)
        for name, rule in rules.items()
        if (message := _problem(rule, counts[name]))
    )
    return rules


def require_numbers(columns: Mapping[str, np.ndarray], inputs: SubjectInputs) -> None:
    """Raise a StudyError unless the columns of a table of draws hold numbers of files."""
    refuse_all(
        Problem(("parameters", number), message)
        for name, number in inputs.numbers.items()
        if (values := columns.get(f"parameters.{number}")) is not None
        and (message := _wrong(values, len(inputs.files[name])))
    )


def proposal_problems(rules: Mapping[str, Any], inputs: Inputs) -> Iterator[Problem]:
    """The proposals from which numbers of files would be drawn that do not exist."""
    for name, count in _counts(inputs, ()).items():
        for key in (name, f"parameters.{name}"):
            if key in rules and (message := _problem(rules[key], count)):
                yield Problem(("sampling", "proposal", key), message)


def _counts(inputs: Inputs, taken: Iterable[str]) -> dict[str, int]:
    """The number of files of each number, which is the same for all inputs that share it."""
    counts: dict[str, int] = {}
    problems = []
    earlier: dict[Any, str] = {}  # inputs without a number of their own, by their files
    for name, number in numbers_of(inputs).items():
        files = inputs[name].file
        twin = earlier.setdefault(files, name) if inputs[name].number is None else name
        if number in taken:
            message = f"must have another name: {number} is a parameter of the model"
            problems.append(Problem(("inputs", name, "number"), message))
        elif twin != name:
            message = (
                f'must be given, since {twin} is from the same files: "{twin}" draws one file for '
                f'both of them, "{name}" one for each'
            )
            problems.append(Problem(("inputs", name, "number"), message))
        elif len(files) != counts.setdefault(number, len(files)):
            message = f"must name {counts[number]} files, as other inputs of the number {number}"
            problems.append(Problem(("inputs", name, "file"), f"{message}, but names {len(files)}"))
    refuse_all(problems)
    return counts


def _uniform(count: int) -> Discrete:
    return Discrete(tuple(map(float, range(count))))


def _problem(rule: Distribution, files: int) -> str:
    if isinstance(rule, FromTable):
        return ""  # its values are known later
    if isinstance(rule, Fixed | Discrete):
        return _wrong(np.asarray(rule.value if isinstance(rule, Fixed) else rule.values), files)
    return (
        "must be the number of a file, which is fixed, discrete or from a table, but is "
        f"{type(rule).__name__}"
    )


def _wrong(values: np.ndarray, files: int) -> str:
    wrong = ~np.isin(values, np.arange(files))
    if not wrong.any():
        return ""
    return f"must be the number of a file, from 0 to {files - 1}, but is {values[wrong][0]:g}"
