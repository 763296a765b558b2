"""The catalogue of models by name, for configurations and the command line."""

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any

from jaxmech.models.andrews import andrews
from jaxmech.models.bead_on_parabola import bead_on_parabola
from jaxmech.models.bead_on_rod import bead_on_rod
from jaxmech.models.chain import chain
from jaxmech.models.chaplygin_sleigh import chaplygin_sleigh
from jaxmech.models.double_pendulum import double_pendulum
from jaxmech.models.double_pendulum_angles import double_pendulum_angles
from jaxmech.models.four_bars import four_bars
from jaxmech.models.free_body import free_body
from jaxmech.models.model import Model
from jaxmech.models.particle_on_curve import particle_on_curve
from jaxmech.models.pendulum import pendulum
from jaxmech.models.rolling_wheel import rolling_wheel

_FACTORIES = (
    pendulum,
    double_pendulum,
    double_pendulum_angles,
    chain,
    bead_on_parabola,
    bead_on_rod,
    particle_on_curve,
    rolling_wheel,
    chaplygin_sleigh,
    four_bars,
    free_body,
    andrews,
)

CATALOGUE: Mapping[str, Callable[..., Model]] = MappingProxyType(
    {factory.__name__: factory for factory in _FACTORIES}
)


def make(name: str, options: Mapping[str, Any] | None = None) -> Model:
    """Make a model by its name.

    Args:
        name: one of the names in `CATALOGUE`.
        options: arguments of the model's function by name, such as {"links": 5} for the chain.

    Raises:
        ValueError: if the model is unknown, or it has no such option.
    """
    if name not in CATALOGUE:
        raise ValueError(
            f"Argument `name` must be a known model, but is {name!r}; "
            f"choose one of {', '.join(sorted(CATALOGUE))}."
        )
    factory, options = CATALOGUE[name], options or {}
    parameters = signature(factory).parameters
    unknown = [option for option in options if option not in parameters]
    if unknown:
        raise ValueError(
            f"Argument `options` must name only options of `{name}` "
            f"({', '.join(parameters) or 'none'}), but has {', '.join(map(repr, unknown))}; "
            "correct or remove it."
        )
    return factory(**options)
