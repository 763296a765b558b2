"""`Outliers`: the samples of a fit that its noise does not explain.

A residual is compared with the median of their sizes, which outliers hardly change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.noise.losses import NORMAL
from jaxmech.utils.arrays import HostArray

_CHANCE = 1e-3  # probability that normal noise has an outlier
_SPREAD = 1.2  # standard deviation of the median of n sizes, relative, times the root of n
_EXACT = 1e-6  # share of the motion below which residuals are numerical errors
_FEWEST = 20  # samples of a sensor, to tell
_SHOWN = 10  # rows of a print


class Outlier(NamedTuple):
    """A sample that the noise does not explain; part of `Outliers` in the result of `fit`."""

    recording: str  # its name
    time: float  # [s]
    sensor: int  # its index
    sigmas: float  # predicted less observed, in standard deviations of the noise


@dataclass(frozen=True, repr=False)
class Outliers:
    """The samples that the noise of a fit does not explain, the largest first; prints itself.

    A part of a `Fit`, the result of `fit`: `Fit.outliers`.
    """

    samples: tuple[Outlier, ...]
    count: int  # of all measurements
    limit: float  # size from which a sample is an outlier, in standard deviations

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Outlier]:
        return iter(self.samples)

    def __repr__(self) -> str:
        share = 100 * len(self) / max(self.count, 1)
        far = f"more than {self.limit:.2g} standard deviations off"
        lines = [f"Outliers: {len(self)} of {self.count:,} samples ({share:.2g} %), {far}"]
        if self.samples:
            width = max(9, *(len(sample.recording) for sample in self.samples))
            lines.append(f"  {'recording':<{width}}{'time [s]':>12}{'sensor':>8}{'sigmas':>10}")
        for sample in self.samples[:_SHOWN]:
            cells = f"{sample.time:>12.6g}{sample.sensor:>8}{sample.sigmas:>10.3g}"
            lines.append(f"  {sample.recording:<{width}}{cells}")
        if len(self) > _SHOWN:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)


def outliers(
    residuals: Sequence[HostArray],
    recordings: Sequence[Recording],
    errors: Sequence[HostArray] = (),
) -> Outliers:
    """The outliers among independent residuals (T, d) of each recording, NaN without one.

    There are none where the residuals in the units of the sensors, `errors`, are numerical errors.

    Example:
        >>> r = np.random.default_rng(0).normal(size=(50, 1))
        >>> r[7] = 20.0
        >>> swing = Recording(np.arange(50.0), np.zeros(50), [0.0], [0.0], name="swing")
        >>> [(sample.recording, sample.time) for sample in outliers([r], [swing])]
        [('swing', 7.0)]
    """
    from scipy.special import ndtri  # slow to import, and seldom needed

    count = sum(int(np.isfinite(r).sum()) for r in residuals)
    per_sensor = max(count, 1) / residuals[0].shape[1]
    limit = float(-ndtri(_CHANCE / (2 * max(count, 1)))) * (1 + _SPREAD / np.sqrt(per_sensor))
    samples: list[Outlier] = []
    for sensor in range(residuals[0].shape[1]):
        values = np.concatenate([r[:, sensor] for r in residuals])
        values = values[np.isfinite(values)]
        if errors and _is_exact([x[:, sensor] for x in errors], recordings, sensor):
            continue
        size = NORMAL * float(np.median(np.abs(values))) if len(values) >= _FEWEST else 0.0
        if not size > 0:
            continue
        for r, recording in zip(residuals, recordings, strict=True):
            sigmas = r[:, sensor] / size
            samples += [
                Outlier(recording.name, float(recording.ts[k]), sensor, float(sigmas[k]))
                for k in np.flatnonzero(np.abs(sigmas) > limit)
            ]
    samples.sort(key=lambda sample: -abs(sample.sigmas))
    return Outliers(tuple(samples), count, limit)


def _is_exact(errors: Sequence[HostArray], recordings: Sequence[Recording], sensor: int) -> bool:
    observed = np.concatenate([recording.observed[:, sensor] for recording in recordings])
    return bool(np.nanstd(np.concatenate(errors)) <= _EXACT * np.nanstd(observed))
