"""`ModesStudy`: the configuration of a study of eigenvalues."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from jaxmech.config.errors import Problem, out_of_range, refuse_all
from jaxmech.ensemble.distributions import Distribution
from jaxmech.ensemble.sampling.plans import Drawn
from jaxmech.utils.field_docs import doc, setting


@dataclass(frozen=True, kw_only=True)
class ModesStudy(Drawn):
    """The probability that an equilibrium or a steady motion is unstable, for random parameters.

    Example:
        >>> from jaxmech.ensemble import Uniform
        >>> study = ModesStudy(model="pendulum", size=100, parameters={"l": Uniform(0.5, 2.0)})
        >>> study.confidence
        0.95
    """

    model: str = field(
        metadata=doc(
            'a name of `jaxmech models`, or next to this file "path/file.py:attribute" or the path '
            "of an MJCF or URDF file"
        )
    )
    size: int = field(metadata=doc("number of members", least=1))
    model_options: Mapping[str, Any] = setting({}, "options of the model, such as { links = 10 }")
    seed: int = setting(0, "seed of all random numbers, at least 0", least=0)
    time: float = setting(0.0, "when the equilibrium is looked for [s]")
    steady: bool = setting(
        False, "the steady motion nearest to the model's initial velocities, not rest"
    )
    fixed: tuple[str, ...] = setting((), "coordinates that are held at their guess")
    confidence: float = setting(
        0.95, "level of the interval of the probability of instability", between=(0, 1)
    )
    failed_allowed: float = setting(
        0.0, "fraction of members without a verdict up to which the exit code is 0"
    )
    block: int = setting(
        1024, "members computed together; changes no result but by round-off", least=1
    )
    start: Mapping[str, Distribution] = setting(
        {}, "start variables of the model, whose state is the guess, by name"
    )
    coordinates: Mapping[str, Distribution] = setting(
        {}, "guess of the coordinates, in place of the model's"
    )
    velocities: Mapping[str, Distribution] = setting(
        {}, "rates that a steady motion keeps; without any: at rest"
    )
    parameters: Mapping[str, Distribution] = setting(
        {}, "parameters; `m` draws all entries of an array, `m[3]` a single one"
    )

    def __post_init__(self) -> None:
        refuse_all(_problems(self))


def _problems(study: ModesStudy) -> Iterator[Problem]:
    yield from out_of_range(study)
    if not isfinite(study.time):
        yield Problem(("time",), f"must be finite, but is {study.time}")
    if not 0 <= study.failed_allowed <= 1:
        message = f"must be a fraction from 0 to 1, but is {study.failed_allowed}"
        yield Problem(("failed_allowed",), message)
    if study.steady and study.velocities:
        message = "must be left out where rates are given in [velocities]: the motion keeps those"
        yield Problem(("steady",), message)
