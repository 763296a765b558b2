"""Random inputs of studies: white noise, and recordings whose phases are drawn anew.

A process is a function of numbers that are drawn like other parameters, one trajectory like the
next: its values at given times are a smooth function of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, pi, sqrt
from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config import OneOf, Process
from jaxmech.config.errors import refuse
from jaxmech.ensemble.distributions import Normal, Uniform
from jaxmech.ensemble.recorded.settings import RecordedInput, TimeRange
from jaxmech.signal import Signal
from jaxmech.utils.text import doc, setting

_ROUND_OFF = 1e-9  # of an interval


@dataclass(frozen=True, kw_only=True)
class WhiteNoise:
    """White noise that is held for intervals of equal length, as an input of a study.

    The functions of the system call it, `params["gust"](t)`. It stands for noise w with
    E[w(t) w(t + τ)] = intensity δ(τ), in the place of which each interval has a normal number of
    variance intensity / interval. With a two-sided spectral density S of the angular frequency,
    the intensity is 2 π S. Motions that are slow compared with the interval do not depend on it.

    The numbers of the intervals, in units of their standard deviation, are a parameter of the
    study with the name of the input, such as `gust[17]`.

    Example:
        >>> noise = WhiteNoise(intensity=0.5, interval=0.02)
        >>> noise.deviation
        5.0
    """

    is_numbered: ClassVar[bool] = False  # has no files
    is_drawn: ClassVar[bool] = True

    intensity: float = field(metadata=doc("integral of the correlation function [unit^2 s]"))
    interval: float = field(metadata=doc("time for which a number is held [s]"))

    def __post_init__(self) -> None:
        for name in ("intensity", "interval"):
            value = getattr(self, name)
            if not 0 < value < np.inf:
                raise refuse(name, f"must be above 0, but is {value}")

    @property
    def deviation(self) -> float:
        """The standard deviation of the number of an interval."""
        return sqrt(self.intensity / self.interval)

    def renamed(self, rename: Callable[[str], str]) -> "WhiteNoise":
        """The same, as it is from no file."""
        return self

    def process(self, times: TimeRange) -> Process:
        """The noise over a range of times."""
        intervals = (times.last - times.first) / self.interval
        count = max(ceil(intervals - _ROUND_OFF), 2)
        ts, sd = times.first + self.interval * np.arange(count), self.deviation
        signal = Signal(ts, np.zeros(count), "hold")
        return Process(signal, (count,), Normal(mean=0.0, sd=1.0), lambda numbers: sd * numbers)


@dataclass(frozen=True, kw_only=True)
class RandomPhases(RecordedInput):
    """A recording of which each trajectory has a variant with other phases, as an input of a study.

    The variants have the spectrum of the recording, by its Fourier transform (Theiler et al.,
    "Testing for nonlinearity in time series: the method of surrogate data", Physica D 58, 1992).
    Samples must be evenly spaced. They are continued periodically, so that a recording should be
    longer than the time in which its ends matter to each other.

    Phases, or amplitudes by sine and cosine, are a parameter of the study with the name of the
    input, such as `road[17]`, the frequency of 17 periods in the recording after the first.

    Example:
        >>> road = Signal(0.1 * np.arange(8), np.sin(np.pi / 2 * np.arange(8)))
        >>> variant = RandomPhases(file="road.csv", column="height").process(road)
        >>> print(variant.values(jnp.array([0.0, np.pi, 0.0])).round(6)[:4] + 0.0)
        [-1.  0.  1.  0.]
    """

    is_drawn: ClassVar[bool] = True

    amplitudes: Literal["recorded", "random"] = setting(
        "recorded",
        'those of the recording with random phases, or "random": normal numbers for sine and '
        "cosine, so that the input is a Gaussian process",
    )
    highest: float | None = setting(
        None, "frequency above which components stay as they are recorded [Hz]; none by default"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_numbered:
            raise refuse("file", "must be a single file, whose phases are drawn anew")
        if self.highest is not None and not self.highest > 0:
            raise refuse("highest", f"must be above 0, but is {self.highest}")

    def process(self, signal: Signal) -> Process:
        """The variants of a signal."""
        if signal.spacing is None:
            raise refuse("file", "must hold evenly spaced samples, whose phases are drawn anew")
        spectrum = np.fft.rfft(np.asarray(signal.values, float))
        size, spacing = len(signal.values), float(signal.spacing)
        frequencies = np.fft.rfftfreq(size, spacing)
        highest = np.inf if self.highest is None else self.highest
        # The mean has no phase, nor has the highest frequency of an even number of samples.
        last = int(np.sum(frequencies[1 : (size + 1) // 2] <= highest))
        if not last:
            raise refuse("highest", f"must be at least {frequencies[1]:g}, the lowest frequency")
        magnitudes, rest = np.abs(spectrum[1 : last + 1]), spectrum.copy()
        rest[1 : last + 1] = 0.0
        is_gaussian = self.amplitudes == "random"

        def values(numbers: Array) -> Array:
            real, imaginary = (
                numbers / sqrt(2.0) if is_gaussian else (jnp.cos(numbers), jnp.sin(numbers))
            )
            drawn = jnp.asarray(magnitudes, numbers.dtype) * (real + 1j * imaginary)
            whole = jnp.asarray(rest, drawn.dtype).at[1 : last + 1].set(drawn)
            return jnp.fft.irfft(whole, size).astype(numbers.dtype)

        if is_gaussian:
            return Process(signal, (2, last), Normal(mean=0.0, sd=1.0), values)
        return Process(signal, (last,), Uniform(0.0, 2 * pi), values)


StudyInput = Annotated[
    RecordedInput | WhiteNoise | RandomPhases,
    OneOf(
        {"recorded": RecordedInput, "white-noise": WhiteNoise, "random-phases": RandomPhases},
        tag="kind", default="recorded",
    ),
]  # fmt: skip
