"""Unknown names in an invalid configuration, so that all mistakes are reported at once."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmech.config.errors import Problem, StudyError, not_one_of
from jaxmech.config.load import load
from jaxmech.ensemble.draws import known_names


def name_problems(data: Mapping[str, Any], folder: Path = Path()) -> list[Problem]:
    """The unknown models, options, variables and parameters in the plain data of a configuration.

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
