"""The system of whatever a function is given: a system, a model, a mechanism or a robot."""

from typing import Any

from jaxmech.system.system import Params, System
from jaxmech.utils.checks import require_kind

# `Any` stands for `Model`, `Mechanism` and `Robot`, which are made of systems.
Subject = System | Any


def system_of(subject: Subject) -> System:
    """The system of a model, a mechanism or a robot, or the system itself.

    Raises:
        TypeError: if there is none.
    """
    return with_params(subject, None)[0]


def with_params(subject: Subject, params: Params) -> tuple[System, Params]:
    """The system of a subject, and its parameters where None are given."""
    if isinstance(subject, System):
        return subject, params
    system = getattr(subject, "system", subject)
    require_kind("system", system, System, "System(...)")
    assert isinstance(system, System)
    return system, dict(subject.params) if params is None else params
