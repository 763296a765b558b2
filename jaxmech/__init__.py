"""jaxmech: constrained mechanics in batches, from plain JAX functions.

Systems, simulation and fits are in this namespace; everything else is in further ones: `models` and
`parts` build systems, `analysis` examines them, `laws` contains the laws of motion, `control`
controllers and prescribed motions, `identify` everything for fits, `ensemble` Monte Carlo studies,
`plot` pictures, `integrate` the base classes of methods, `compiler` native code, and `errors` the
exceptions and warnings. `jaxmech.interop` reads the files of other programs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxmech import compiler as compiler
from jaxmech import control as control
from jaxmech import integrate as integrate
from jaxmech import laws as laws
from jaxmech import models as models
from jaxmech import parts as parts
from jaxmech.control import Controller as Controller
from jaxmech.control import controlled as controlled
from jaxmech.integrate import RATTLE as RATTLE
from jaxmech.integrate import RK4 as RK4
from jaxmech.integrate import Adaptive as Adaptive
from jaxmech.integrate import DormandPrince5 as DormandPrince5
from jaxmech.integrate import DormandPrince8 as DormandPrince8
from jaxmech.integrate import Event as Event
from jaxmech.integrate import FixedSteps as FixedSteps
from jaxmech.integrate import Rodas5P as Rodas5P
from jaxmech.integrate import Transition as Transition
from jaxmech.laws import acceleration as acceleration
from jaxmech.run import Solution as Solution
from jaxmech.run import observe as observe
from jaxmech.run import simulate as simulate
from jaxmech.state import Baumgarte as Baumgarte
from jaxmech.state import Projection as Projection
from jaxmech.state import assemble as assemble
from jaxmech.status import Status as Status
from jaxmech.system import Acceleration as Acceleration
from jaxmech.system import DryFriction as DryFriction
from jaxmech.system import Holonomic as Holonomic
from jaxmech.system import Nonholonomic as Nonholonomic
from jaxmech.system import Signal as Signal
from jaxmech.system import System as System
from jaxmech.system import Unilateral as Unilateral
from jaxmech.utils.text import DRAWINGS as _DRAWINGS

if TYPE_CHECKING:
    from jaxmech import analysis as analysis
    from jaxmech import ensemble as ensemble
    from jaxmech import errors as errors
    from jaxmech import identify as identify
    from jaxmech import plot as plot
    from jaxmech.identify import Recording as Recording
    from jaxmech.identify.fit import fit as fit
    from jaxmech.plot.animation import animate as animate
    from jaxmech.plot.viewer import view as view

__version__ = "0.2.0"

__all__ = [
    "RATTLE",
    "RK4",
    "Acceleration",
    "Adaptive",
    "Baumgarte",
    "Controller",
    "DormandPrince5",
    "DormandPrince8",
    "DryFriction",
    "Event",
    "FixedSteps",
    "Holonomic",
    "Nonholonomic",
    "Projection",
    "Recording",
    "Rodas5P",
    "Signal",
    "Solution",
    "Status",
    "System",
    "Transition",
    "Unilateral",
    "acceleration",
    "analysis",
    "animate",
    "assemble",
    "compiler",
    "control",
    "controlled",
    "ensemble",
    "errors",
    "fit",
    "identify",
    "laws",
    "models",
    "observe",
    "parts",
    "plot",
    "simulate",
    "view",
]

# What takes long to import, and is not needed to simulate: the modules that have these names.
_IMPORTED_WHEN_USED = {
    "Recording": "jaxmech.identify",
    "analysis": "jaxmech.analysis",
    "animate": "jaxmech.plot",
    "ensemble": "jaxmech.ensemble",
    "errors": "jaxmech.errors",
    "fit": "jaxmech.identify",
    "identify": "jaxmech.identify",
    "plot": "jaxmech.plot",
    "view": "jaxmech.plot",
}


def _draw_motion(*arguments: Any) -> Any:
    from jaxmech.plot import plot_motion  # matplotlib takes long to import

    return plot_motion(*arguments)


def _draw_fit(*arguments: Any) -> Any:
    from jaxmech.plot import plot_fit

    return plot_fit(*arguments)


def _draw_results(*arguments: Any) -> Any:
    from jaxmech.plot import plot_results

    return plot_results(*arguments)


def _draw_mechanism(*arguments: Any) -> Any:
    from jaxmech.plot.mechanisms import shapes_of_mechanism

    return shapes_of_mechanism(*arguments)


_DRAWINGS.update(
    Mechanism=_draw_mechanism, Solution=_draw_motion, Fit=_draw_fit, Results=_draw_results
)


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_WHEN_USED:
        raise AttributeError(f"module 'jaxmech' has no attribute {name!r}")
    location = _IMPORTED_WHEN_USED[name]
    module = import_module(location)
    return module if location == f"jaxmech.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"]
