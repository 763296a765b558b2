"""`compare`: fits of several models to the same recordings, side by side.

`friction_laws` are such models: a mechanism with several laws of friction in its joints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxmech.identify.identifiable import Identifiable
from jaxmech.identify.problem.least_squares import Observe
from jaxmech.identify.result import Fit
from jaxmech.parts import Joint, Mechanism, friction
from jaxmech.state import Start
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_kind, require_positive, require_sequence


@dataclass(frozen=True, eq=False, repr=False)
class FitComparison:
    """Fits by name; prints itself as a table, with the smallest AIC first.

    The result of `compare`.

    Attributes:
        fits: the fits by the names of their models.
    """

    fits: Mapping[str, Fit]

    @property
    def aic(self) -> HostArray:
        """Akaike's criterion of each fit, (F,)."""
        return np.array([fit.aic for fit in self.fits.values()])

    @property
    def bic(self) -> HostArray:
        """The Bayesian criterion of each fit, (F,)."""
        return np.array([fit.bic for fit in self.fits.values()])

    @property
    def best(self) -> str:
        """The name of the fit with the smallest AIC."""
        return list(self.fits)[int(np.argmin(self.aic))]

    def __repr__(self) -> str:
        names, first = list(self.fits), next(iter(self.fits.values()))
        width = max(10, *(len(name) + 2 for name in names))
        heads = ("unknowns", "log L", "AIC", "less best", "BIC", "less best")
        lines = [
            f"Comparison of {len(names)} fits to {first.count:,} measurements",
            f"  {'':<{width}}" + "".join(f"{head:>12}" for head in heads) + "  noise",
        ]
        for k in np.argsort(self.aic):
            fit = self.fits[names[k]]
            numbers = (
                fit.noise.log_likelihood, fit.aic, fit.aic - self.aic.min(), fit.bic,
                fit.bic - self.bic.min(),
            )  # fmt: skip
            cells = "".join(f"{x:>12.1f}" for x in numbers)
            count = fit.unknowns + fit.noise.parameters
            lines.append(f"  {names[k]:<{width}}{count:>12}{cells}  {fit.noise.law}")
        return "\n".join(lines)


def compare(fits: Mapping[str, Fit]) -> FitComparison:
    """Compare fits of several models, or of several kinds of noise, to the same recordings.

    Uses the criteria of Akaike and of Schwarz, under the noise that each fit assumed. They require
    that residuals are noise, and that there are many of them; `cross_validate` assumes less.

    Args:
        fits: the fits by the names of their models.

    Raises:
        ValueError: if there is no fit, a fit has no likelihood, or the recordings are not the same.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> noise = 1e-3 * np.random.default_rng(0).normal(size=(101, 1))
        >>> sol = jm.simulate(model.system, q0, v0, ts, model.params)
        >>> swing = jm.Recording(ts, sol.q + noise, q0, v0)
        >>> fits = {
        ...     free: jm.fit(model.system, swing, {**model.params, "g": 9.5}, free=[free])
        ...     for free in ("g", "m")
        ... }
        >>> compare(fits).best
        'g'
    """
    if not fits:
        raise ValueError(
            "Argument `fits` must hold fits by the names of their models, but is empty."
        )
    first = next(iter(fits.values()))
    for name, fit in fits.items():
        if not np.isfinite(fit.noise.log_likelihood):
            raise ValueError(
                f"Argument `fits` must hold fits with a likelihood, but {name!r} has none: its "
                "residuals are zero, or it was saved by an earlier version; fit again."
            )
        pairs = zip(fit.train.recordings, first.train.recordings, strict=False)
        same = fit.count == first.count and all(
            np.array_equal(a.observed, b.observed, equal_nan=True) for a, b in pairs
        )
        if not same:
            raise ValueError(
                f"Argument `fits` must hold fits to the same recordings, but {name!r} has others; "
                "likelihoods of different measurements cannot be compared."
            )
    return FitComparison(dict(fits))


_SMOOTH = 0.02  # of the speed, at which dry friction is reached
_LAWS = {  # the numbers of each law; the others are zero
    "viscous": ("viscous",),
    "coulomb": ("coulomb",),
    "coulomb + viscous": ("coulomb", "viscous"),
    "stribeck": ("coulomb", "viscous", "static", "stribeck"),
}


def friction_laws(
    mechanism: Mechanism,
    joints: Sequence[str],
    *,
    torque: float | int,
    speed: float | int,
    free: Sequence[str] = (),
    bounds: Mapping[str, Any] | None = None,
    observe: Observe | None = None,
    start: Start | None = None,
) -> dict[str, Identifiable]:
    """Laws of friction in joints of a mechanism, as candidates for `cross_validate`.

    The candidates are "viscous", "coulomb", "coulomb + viscous" and "stribeck", which has both of
    these and a larger friction at rest. They use `parts.friction`, with parameters such as
    `elbow.viscous`, which are fitted with a lower bound of zero.

    Args:
        mechanism: the mechanism without this friction.
        joints: names of the joints.
        torque: initial guess of the friction [N m or N].
        speed: typical speed of the motion [rad/s or m/s]; dry friction is smoothed below 2 % of it.
        free: names of further parameters to be fitted.
        bounds: bounds of these parameters, as for `fit`.
        observe: the sensors, as for `fit`.
        start: the initial state, as for `fit`.

    Raises:
        ValueError: if the mechanism has no joint with one of the names, or a number is not
            positive.

    Example:
        >>> from jaxmech.parts import gravity, ground, planar_body, revolute
        >>> rod = planar_body("rod", mass=1.0, inertia=0.1)
        >>> hinge = revolute("hinge", ground, (0, 0), rod, (-0.5, 0))
        >>> swing = Mechanism([rod], [hinge], [gravity(9.81)])
        >>> laws = friction_laws(swing, ["hinge"], torque=0.1, speed=2.0)
        >>> laws["coulomb + viscous"].free
        ('hinge.coulomb', 'hinge.viscous')
    """
    require_kind("mechanism", mechanism, Mechanism, "Mechanism(...) or robot.mechanism")
    require_sequence("joints", joints)
    require_positive("torque", torque)
    require_positive("speed", speed)
    named = {joint.name: joint for joint in mechanism.joints if isinstance(joint, Joint)}
    for name in joints:
        if name not in named:
            raise ValueError(
                f"Argument `joints` must hold names of joints out of {', '.join(named)}, but has "
                f"{name!r}."
            )
    begin = {"coulomb": torque, "viscous": torque / speed, "static": 1.5 * torque}
    begin["stribeck"] = 0.2 * speed
    candidates = {}
    for law, numbers in _LAWS.items():
        added = {f"{joint}.{number}": begin[number] for joint in joints for number in numbers}
        forces = [_friction(named[joint], numbers, speed) for joint in joints]
        whole = replace(
            mechanism,
            forces=(*mechanism.forces, *forces),
            params={**mechanism.params, **added},
        )
        candidates[law] = Identifiable(
            whole.system,
            dict(whole.params),
            observe,
            start,
            free=(*free, *added),
            bounds={**(bounds or {}), **dict.fromkeys(added, (0, None))},
        )
    return candidates


def _friction(joint: Joint, numbers: Sequence[str], speed: float) -> Any:
    values: dict[str, Any] = {"coulomb": 0.0}
    values |= {number: f"{joint.name}.{number}" for number in numbers}
    return friction(f"friction in {joint.name}", joint, smooth=_SMOOTH * speed, **values)
