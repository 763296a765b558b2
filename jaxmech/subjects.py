"""The system of whatever a function is given: a system, a model, a mechanism, a robot or a name."""

from importlib import import_module
from pathlib import Path
from typing import Any

from jaxmech.system import Params, System
from jaxmech.utils.checks import require_kind

# `Any` stands for `Model`, `Mechanism` and `Robot`, which are made of systems, and for names.
Subject = System | Any


def system_of(subject: Subject) -> System:
    """The system of a model, a mechanism, a robot or a file, or the system itself.

    Raises:
        TypeError: if there is none.
        ValueError: if no system has this name, or its file cannot be read.

    Example:
        >>> from jaxmech import models
        >>> system_of(models.pendulum())
        System(coordinates=('x1', 'x2'), constraints=(Holonomic('rod'),))
    """
    return with_params(subject, None)[0]


def with_params(subject: Subject, params: Params) -> tuple[System, Params]:
    """The system of a subject, and its parameters where None are given.

    A name is that of a model in the catalogue, of an MJCF or URDF file, or "path/file.py:name", as
    in configurations and commands; the file is read in each call. A system in a Python file has the
    parameters `params` of its file.

    Example:
        >>> with_params("bead_on_rod", None)[1]["m"]
        1.0
    """
    own: Params = None
    if isinstance(subject, str | Path):
        # Files are read a few layers above, with libraries that take long to import.
        try:
            loaded = import_module("jaxmech.config").load(str(subject), {})
        except ValueError as error:  # in the words of a configuration
            raise ValueError(str(error).replace("`model`", "`system`")) from error
        subject = loaded.system if loaded.model is None else loaded.model
        own = loaded.beside.get("params")
    system = subject if isinstance(subject, System) else getattr(subject, "system", subject)
    require_kind("system", system, System, "System(...)")
    assert isinstance(system, System)
    if params is None:
        params = own if isinstance(subject, System) else dict(subject.params)
    return system, params
