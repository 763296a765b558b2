"""Names in a configuration that cannot be read as a whole: all mistakes are told at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmech.config.errors import Problem, StudyError, not_one_of
from jaxmech.config.load import load
from jaxmech.ensemble.draws import known_names


def name_problems(data: Mapping[str, Any], folder: Path = Path()) -> list[Problem]:
    """The unknown names in the plain data of a configuration, whatever else is wrong with it.

    Args:
        data: what `tomllib` reads.
        folder: the folder to which a model's relative path refers.

    Returns:
        A problem for each model, option, start variable, coordinate and parameter that is unknown.

    Example:
        >>> [p.key for p in name_problems({"model": "pendulum", "start": {"phi": 1.0}})]
        [('start', 'phi')]
    """
    name, options = data.get("model"), data.get("model_options", {})
    if not isinstance(name, str) or not isinstance(options, dict):
        return []
    try:
        subject = load(name, options, folder)
    except StudyError as error:
        return list(error.problems)
    return [
        Problem((section, key), not_one_of(key.partition("[")[0], known, what))
        for section, known, what in known_names(subject)
        for key in _keys(data.get(section))
        if known is not None and key.partition("[")[0] not in known
    ]


def _keys(table: Any) -> list[str]:
    return list(table) if isinstance(table, dict) else []
