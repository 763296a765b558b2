"""The controllers that a configuration names, and the closed loop with them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jaxmech.config.errors import StudyError, refuse
from jaxmech.config.load import LoadedObject, find
from jaxmech.control import Controller, controlled
from jaxmech.system import Params, System


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """A system with the controllers that a configuration names."""

    system: System
    outputs: frozenset[str]  # names, which are no longer those of parameters
    files: tuple[LoadedObject, ...]  # of the controllers

    def params(self, params: Params) -> Params:
        """The parameters of the system alone, without those whose places outputs take."""
        if not isinstance(params, dict):
            return params
        return {name: x for name, x in params.items() if name not in self.outputs}


def closed_loop(system: System, names: Iterable[str], folder: Path) -> ClosedLoop:
    """The system with controllers that are named "file.py:name", seen from a folder."""
    files = []
    for name in names:
        try:
            files.append(find(name, {}, folder, (Controller,)))
        except StudyError as error:
            messages = [problem.message for problem in error.problems]
            raise refuse("controllers", "; ".join(messages)) from error
    values = [file.value for file in files]
    try:
        loop = controlled(system, values)  # type: ignore[arg-type]  # which it checks
    except (TypeError, ValueError) as error:
        raise refuse("controllers", f"cannot be used: {error}") from error
    outputs = frozenset(value.name for value in values if isinstance(value, Controller))
    return ClosedLoop(loop, outputs, tuple(files))
