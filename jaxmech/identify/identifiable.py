"""`Identifiable`, what is unknown and how it is measured, and `Settings`, how it is fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxmech.assemble import Start
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import Shooting
from jaxmech.identify.fit import Optimizer, fit
from jaxmech.identify.optimize.levenberg_marquardt import LevenbergMarquardt
from jaxmech.identify.optimize.multistart import MultiStart
from jaxmech.identify.problem.residuals import Observe
from jaxmech.identify.problem.setup import InitialStates
from jaxmech.identify.result import Fit
from jaxmech.integrate import RK4, AbstractMethod
from jaxmech.stabilization import AbstractStabilization, Projection
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_function, require_kind


@dataclass(frozen=True, eq=False)
class Identifiable:
    """A system with what is unknown in it, and how it is measured: what `jaxmech fit` looks for.

    Args:
        system: the system.
        params: where a fit begins.
        observe: observe(q, v, t, params) gives what the sensors show; the coordinates by default.
        start: start(q0, v0, params) gives the state for recorded start variables; by default they
            are coordinates and velocities.
        free: names of the parameters to fit; all floating-point ones by default.
        bounds: by name, (low, high) or `PhysicalInertia()`.
        prior: by name, (mean, standard deviation).

    Raises:
        TypeError: an argument is of the wrong kind.

    Example:
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> swing = Identifiable(model.system, model.params, free=("g",), bounds={"g": (0, None)})
        >>> swing.free
        ('g',)
    """

    system: System
    params: Params
    observe: Observe | None = None
    start: Start | None = None
    free: Sequence[str] | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    prior: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_kind("system", self.system, System, "System(...)")
        for name in ("observe", "start"):
            if getattr(self, name) is not None:
                require_function(name, getattr(self, name))


@dataclass(frozen=True, eq=False)
class Settings:
    """How fits are done: the policies of `fit` in one object, for several fits that are alike.

    Args:
        optimizer: see `fit`.
        initial_states: "free" or "fixed".
        horizon: pieces for chaotic motion.
        multistart: random beginnings.
        method: Runge-Kutta method.
        projection: against drift.
        formulation: law of motion.
        step: largest step [s].

    Example:
        >>> Settings(initial_states="fixed").step is None
        True
    """

    optimizer: Optimizer = LevenbergMarquardt()
    initial_states: InitialStates = "free"
    horizon: Shooting | None = None
    multistart: MultiStart | None = None
    method: AbstractMethod = RK4()
    projection: AbstractStabilization | None = Projection()
    formulation: AbstractFormulation = UdwadiaKalaba()
    step: float | None = None


def fit_identifiable(
    subject: Identifiable,
    recordings: Sequence[Recording],
    settings: Settings = Settings(),
    *,
    validation: Sequence[Recording] = (),
    folder: Path | None = None,
    progress: bool = False,
) -> Fit:
    """`fit`, for what is unknown in one object and how it is fitted in another.

    Args:
        subject: what is fitted.
        recordings: to what.
        settings: how.
        validation: recordings that are not fitted.
        folder: keeps the state of the fit.
        progress: whether to show the loss.

    Raises:
        ValueError: see `fit`.

    Example:
        >>> import numpy as np
        >>> import jaxmech as jm
        >>> ts = np.linspace(0.0, 1.0, 41)
        >>> swing = Recording(ts, np.cos(3 * ts), [1.0], [0.0])
        >>> spring = jm.System(
        ...     lambda q, v, t, p: (v @ v - p["k"] * q @ q) / 2, coordinates=("x",)
        ... )
        >>> found = fit_identifiable(Identifiable(spring, {"k": 8.0}), [swing])
        >>> print(f"{found.params['k']:.4f}")
        9.0000
    """
    return fit(
        subject.system, recordings, subject.params, observe=subject.observe, start=subject.start,
        free=subject.free, bounds=subject.bounds or None, prior=subject.prior or None,
        validation=validation, optimizer=settings.optimizer,
        initial_states=settings.initial_states, horizon=settings.horizon,
        multistart=settings.multistart, method=settings.method, projection=settings.projection,
        formulation=settings.formulation, step=settings.step, folder=folder, progress=progress,
    )  # fmt: skip
