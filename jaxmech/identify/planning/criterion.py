"""Criteria that a designed experiment minimizes, and limits of its inputs.

C is the covariance of the fitted numbers, each relative to its value (Pukelsheim, "Optimal design
of experiments", 2006, chapter 6).

An input is limited in its energy, or its largest value. Integrals of an input u are sums over the
intervals between the samples of the recording and those of the `Signal`, by the rule of Gauss with
four nodes: exact for a signal, which is a polynomial of degree three at most between its samples.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.result import Fit
from jaxmech.system import Params, Signal, is_signal
from jaxmech.utils.checks import require_kind, require_positive

Input = str | Callable[[Array, Params], Any]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)


@dataclass(frozen=True)
class AbstractBudget:
    """Base of the limits of an input of a `design`.

    Attributes:
        input: the name of a `Signal` among the parameters of the experiment, or input(t, params)
            for any other form, a number or shape (k,).
        limit: largest value of what it spends.
    """

    input: Input
    limit: float

    def __post_init__(self) -> None:
        require_positive("limit", self.limit)

    @abstractmethod
    def shares(self, ts: Array, params: Params) -> Array:
        """What is spent between the first and last of ts, in units of the limit, (m,)."""

    @abstractmethod
    def spent(self, ts: Array, params: Params) -> Array:
        """What is spent between the first and last of ts, in units of the input."""

    @property
    def title(self) -> str:
        """The budget in words, such as "Energy of torque"."""
        name = self.input if isinstance(self.input, str) else getattr(self.input, "__name__", "u")
        return f"{type(self).__name__} of {name}"


@dataclass(frozen=True)
class Energy(AbstractBudget):
    """The integral of the squared input over the recording, such as the energy of a motor.

    If a signal has several components, their squares are added.

    Attributes:
        input: the name of a `Signal` among the parameters of the experiment, or input(t, params)
            for any other form, a number or shape (k,).
        limit: largest integral, in the square of the unit of the input, times s.

    Example:
        >>> from jaxmech import Signal
        >>> ramp = {"torque": Signal([0.0, 1.0], [0.0, 3.0])}
        >>> print(Energy("torque", 4.0).spent(jnp.array([0.0, 1.0]), ramp).round(9))
        3.0
    """

    def shares(self, ts: Array, params: Params) -> Array:
        """The integral in units of the limit, (1,)."""
        return self.spent(ts, params)[None] / self.limit

    def spent(self, ts: Array, params: Params) -> Array:
        """The integral of the squared input."""
        values, widths = _sampled(self.input, ts, params)
        squares = (values**2).sum(-1).reshape(len(widths), -1)
        return jnp.sum(widths / 2 * (squares @ jnp.asarray(_WEIGHTS, squares.dtype)))


@dataclass(frozen=True)
class Peak(AbstractBudget):
    """The largest absolute value of the input, such as the torque at which a motor saturates.

    It is evaluated at the samples of a `Signal`, and at four times between each two samples of the
    signal and of the recording.

    Attributes:
        input: the name of a `Signal` among the parameters of the experiment, or input(t, params)
            for any other form, a number or shape (k,).
        limit: largest absolute value, in the unit of the input.

    Example:
        >>> from jaxmech import Signal
        >>> ramp = {"torque": Signal([0.0, 1.0], [0.0, -3.0])}
        >>> print(Peak("torque", 4.0).spent(jnp.array([0.0, 1.0]), ramp))
        3.0
    """

    def shares(self, ts: Array, params: Params) -> Array:
        """The squares of all values in units of that of the limit."""
        return (self._values(ts, params) / self.limit) ** 2

    def spent(self, ts: Array, params: Params) -> Array:
        """The largest absolute value."""
        return jnp.abs(self._values(ts, params)).max()

    def _values(self, ts: Array, params: Params) -> Array:
        signal = _signal(self.input, params) if isinstance(self.input, str) else None
        if signal is not None and signal.interpolation != "cubic":
            return signal.values.ravel()
        within = _sampled(self.input, ts, params)[0].ravel()
        return within if signal is None else jnp.concatenate([signal.values.ravel(), within])


def budgets(argument: Any) -> tuple[AbstractBudget, ...]:
    """The budgets that are given as one, several or None."""
    if argument is None:
        return ()
    several = tuple(argument) if isinstance(argument, Sequence) else (argument,)
    for budget in several:
        require_kind("budget", budget, AbstractBudget, 'Energy("torque", 4.0)')
    return several


def _sampled(source: Input, ts: Array, params: Params) -> tuple[Array, Array]:
    """The input at the nodes of all intervals, (4 m, k), and their widths (m,)."""
    knots = ts
    signal = _signal(source, params) if isinstance(source, str) else None
    if signal is not None:
        samples = jnp.clip(signal.ts + signal.delay, ts[0], ts[-1])
        knots = jnp.sort(jnp.concatenate([ts, samples]))
    widths = jnp.diff(knots)
    shares = jnp.asarray(1 + _NODES[None], ts.dtype) / 2
    nodes = (knots[:-1, None] + widths[:, None] * shares).ravel()

    def at(t: Array) -> Array:
        value = signal(t) if signal is not None else source(t, params)  # type: ignore[operator]
        return jnp.ravel(jnp.asarray(value))

    return jax.vmap(at)(nodes), widths


def _signal(name: str, params: Params) -> Signal:
    part = params.get(name) if isinstance(params, dict) else None
    if not is_signal(part):
        raise ValueError(
            f"Argument `budget` must name a `Signal` among the parameters of the experiment, but "
            f"{name!r} is none; for an input of another form give a function of (t, params) in "
            "the place of the name."
        )
    assert isinstance(part, Signal)
    return part


class AbstractCriterion:
    """Base of the criteria of a design."""

    @abstractmethod
    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """The loss to minimize, for the information H, the inverse of C."""


@dataclass(frozen=True)
class DOptimal(AbstractCriterion):
    """The volume of the confidence region: the determinant of C.

    The choice does not depend on the units of the parameters.

    Example:
        >>> print(DOptimal().loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        -0.6931
    """

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the determinant of C."""
        return -0.5 * jnp.linalg.slogdet(H)[1]


@dataclass(frozen=True)
class AOptimal(AbstractCriterion):
    """The mean square of the relative errors: the trace of C, dominated by the largest error.

    Example:
        >>> print(AOptimal().loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        0.1116
    """

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the trace of C."""
        return 0.5 * jnp.log(jnp.trace(jnp.linalg.inv(H)))


@dataclass(frozen=True)
class COptimal(AbstractCriterion):
    """The variance of a combination of the numbers: c C c, with its gradient c.

    Use it for combinations that a fit leaves undetermined (`COptimal.undetermined`), or for a
    quantity that depends on the parameters. In `design` the numbers are relative to their values: c
    is for a change of each by 100 %.

    Attributes:
        direction: c, p numbers, or several such rows, whose variances are added.

    Example:
        >>> print(COptimal((0.0, 1.0)).loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        -0.6931
    """

    direction: tuple[float, ...] | tuple[tuple[float, ...], ...]

    @classmethod
    def undetermined(cls, fit: Fit, *, relative: bool = True) -> "COptimal":
        """The directions that a fit leaves undetermined, as the criterion of the next experiment.

        They are the null space of its information and the directions that `identifiability` calls
        weak, orthogonal and of unit length in relative changes. Together with the recordings of the
        fit, an experiment under this criterion determines all numbers, if any experiment can.

        Args:
            fit: the fit; pass it as `known`, too.
            relative: whether numbers are relative to their values, as in `design`; False for
                `choose_measurements` with derivatives with respect to the numbers themselves.

        Raises:
            ValueError: if the fit determines all its numbers.

        Example:
            >>> from jaxmech.identify.storage import made_up
            >>> COptimal.undetermined(made_up())
            Traceback (most recent call last):
            ValueError: Argument `fit` must leave a number open, but all are determined; take
            `AOptimal()` or `DOptimal()` to know them better.
        """
        report = fit.identifiability
        scales = report.directions.scales
        null = report.directions.null_space / scales[:, None]
        changes = np.hstack([null, *(weak.changes[:, None] for weak in report.weak)])
        if not changes.shape[1]:
            raise ValueError(
                "Argument `fit` must leave a number open, but all are determined; take "
                "`AOptimal()` or `DOptimal()` to know them better."
            )
        directions = np.linalg.qr(changes)[0] / (1.0 if relative else scales[:, None])
        return cls(tuple(tuple(c) for c in directions.T.tolist()))

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the variance."""
        c = jnp.asarray(self.direction, H.dtype)
        if c.ndim not in (1, 2) or c.shape[-1] != len(H):
            raise ValueError(
                f"Argument `direction` must hold {len(H)} numbers, one for each that is to be "
                f"known, but has shape {c.shape}."
            )
        c = jnp.atleast_2d(c)
        return 0.5 * jnp.log(jnp.sum(c.T * jnp.linalg.solve(H, c.T)))
