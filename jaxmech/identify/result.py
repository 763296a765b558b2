"""`Fit`, the result of a fit: its numbers, predictions, posterior density and warnings."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.config import npz, write_whole
from jaxmech.identify.noise import (
    Autocorrelation,
    Outliers,
    correlated,
    estimated,
    misfit,
    outliers,
    share,
    standard_residuals,
)
from jaxmech.identify.optimize import Solved
from jaxmech.identify.problem import Data, Point, Task, jumps, outer_rows, runs
from jaxmech.identify.recording import Recording
from jaxmech.identify.segments import EXACT, is_too_coarse, largest_shift, needed_steps, segments
from jaxmech.identify.uncertainty import (
    WHITE,
    Covariance,
    Identifiability,
    Uncertainty,
    assessed,
    identifiability,
)
from jaxmech.integrate import FixedSteps
from jaxmech.system import Params, Signal
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import DRAWINGS, counted, percent


class Density:
    """The unknowns of a fit and their posterior density: `Fit.density`.

    The unknowns y are numbers without bounds, zero at the end of the fit: the distance of a
    parameter from its only bound is an exponential, a parameter with two bounds a logistic
    function; and behind them the unknowns of the initial states. The posterior density of the
    numbers x that are fitted, with a flat prior within their bounds unless one is given, is that
    of y divided by |det dx/dy|. A noise sigma that is not stated has the prior 1 / sigma and is
    integrated out, which leaves (sum r^2)^(-n/2) of the n residuals r of a sensor (Box and Tiao,
    "Bayesian inference in statistical analysis", 1973, section 2.7). The scale of a robust loss is
    the estimate.

    Attributes:
        names: names of the unknowns, Y in all.
        best: their values at the end of the fit, (Y,).
    """

    def __init__(self, solved: Solved) -> None:
        task = self._task = solved.task
        self._conditions = solved.conditions
        self._size = size = task.problem.layout.size
        self._end = solved.at.y[:size]
        self.best = np.concatenate([np.zeros(size), solved.at.y[size:]])
        recordings = [task.origin.recordings[k].name for k in task.origin.recording]
        starts = [f"{name}, start {j}" for name in recordings for j in range(task.data.free_starts)]
        self.names = (*task.problem.layout.names, *starts)

    def params(self, y: Any) -> Params:
        """The parameters for unknowns (Y,), differentiable."""
        return self._task.problem.layout.params(self._unknowns(y), self._task.data.leaves)

    def numbers(self, y: Any) -> Float[Array, " p"]:
        """The numbers that are fitted for unknowns (Y,), differentiable."""
        return self._task.problem.layout.numbers(self._unknowns(y), self._task.data.leaves)

    def _unknowns(self, y: Any) -> Array:
        """The unknowns of the parameters in the fit, (p,)."""
        z = jnp.asarray(y)[: self._size]
        return jnp.asarray(self._task.problem.layout.moved(self._end, z, self._task.data.leaves))

    def log_density(self, y: Float[Array, " Y"]) -> Float[Array, ""]:
        """The logarithm of the posterior density of the unknowns, but for a constant.

        With `jax.jit`, `jax.grad` and `jax.vmap`; -inf where the motion fails.
        """
        task, conditions = self._task, self._conditions
        by_y = jax.jacfwd(self.numbers)(y)[:, : self._size]
        y = jnp.concatenate([self._unknowns(y), y[self._size :]])
        run = runs(task.problem, y, task.data)
        outer = outer_rows(task.problem, task.data, conditions, y)
        left = conditions.jump_weight[None] * jumps(run.end, run.begin, task.data)
        squares = (outer**2).sum() + (left**2).sum()
        r = run.residual * np.asarray(conditions.sensor_weight)[None, None]
        r = jnp.where(task.seen, r, 0.0)
        if task.loss is not None:
            misfit = task.loss.value(r).sum()
        elif task.weighted:
            misfit = 0.5 * (r**2).sum()
        else:
            misfit = 0.5 * (task.seen.sum((0, 1)) * jnp.log((r**2).sum((0, 1)))).sum()
        value = jnp.linalg.slogdet(by_y)[1] - 0.5 * squares - misfit
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)


class Estimate(NamedTuple):
    """The value of a function of the fitted parameters: the result of `Fit.function`."""

    value: float
    standard_error: float  # infinite if it is not determined


@dataclass(frozen=True, eq=False, repr=False)
class Predicted:
    """Recordings with the predictions of the fitted parameters."""

    recordings: tuple[Recording, ...]
    values: tuple[HostArray, ...]  # predicted sensor values, (T, d); NaN after a failure

    @property
    def residuals(self) -> tuple[HostArray, ...]:
        """Predicted minus observed values, (T, d) for each; NaN where nothing was measured."""
        pairs = zip(self.values, self.recordings, strict=True)
        return tuple(values - recording.observed for values, recording in pairs)

    @property
    def errors(self) -> HostArray:
        """Root mean square of the residuals of each recording, in the unit of the sensors, (R,)."""
        pairs = zip(self.residuals, self.recordings, strict=True)
        measured = [r[np.isfinite(recording.observed)] for r, recording in pairs]
        return np.array([np.sqrt(np.mean(r**2)) for r in measured])


@dataclass(frozen=True, eq=False)
class Optimization:
    """How the optimizer of a fit ended.

    Attributes:
        converged: whether it stopped because it could not improve the fit any further.
        reason: why it stopped.
        history: half the sum of squared residuals after each step.
        evaluations: number of evaluations, including those of rejected steps.
        at_bound: the numbers that are at a bound, with their multipliers: the change of half the
            sum of squared residuals for a change of the bound by one.
    """

    converged: bool
    reason: str
    history: tuple[float, ...]
    evaluations: int
    at_bound: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of the measurements that a fit assumed, and the residuals in units of it.

    Attributes:
        size: standard deviation of the weighted residuals; near 1 if the weights are right.
        stated: whether weights, 1 / standard deviation, were given.
        sensors: estimated noise of each sensor in its unit, (d,); None with stated weights.
        correlated: whether residuals are correlated with their neighbours in time; intervals by
            recording or by block are then shown first.
        residuals: residuals in units of the noise, (T, d) for each recording; NaN where nothing
            was measured.
    """

    size: float
    sensors: HostArray | None
    stated: bool
    correlated: bool = False
    residuals: tuple[HostArray, ...] = ()

    @property
    def unit(self) -> float:
        """Standard deviation of a weighted residual: 1 with stated weights."""
        return 1.0 if self.stated else self.size


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The result of `fit`; prints itself.

    Attributes:
        params: the fitted parameters, in the structure of those at the start.
        names: names of the fitted numbers, p in all.
        values: values of these numbers, shape (p,).
        train: the fitted recordings, simulated from the fitted initial states.
        validation: the validation recordings, simulated from the recorded initial states.
        initial_states: fitted start variables and rates (k,), (k,) of each recording.
        optimization: how the optimizer ended.
        uncertainty: standard errors, intervals and correlations of the numbers.
        information: J^T J of the residuals by the numbers, initial states eliminated, (p, p).
        noise: the noise that was assumed, and the residuals in units of it.
        count: number of measurements.
        unknowns: number of unknowns, free initial states included.
        integration_error: estimated integration error of the fitted motions, the largest relative
            to their range, as in `Solution`; of up to 16 segments with fixed steps.
        notes: the warnings, except that of what is not determined.
        bounds: lower and upper bounds of the numbers, shape (p, 2), infinite without one.
        priors: mean and standard deviation of their priors, shape (p, 2), infinite without one.
        end: the end of the optimization; None for a fit that was loaded from a file.
    """

    params: Params
    names: tuple[str, ...]
    values: HostArray
    train: Predicted
    validation: Predicted
    initial_states: tuple[tuple[HostArray, HostArray], ...]
    optimization: Optimization
    uncertainty: Uncertainty
    information: HostArray
    noise: Noise
    count: int
    unknowns: int
    bounds: HostArray
    priors: HostArray
    integration_error: float = float("nan")
    notes: tuple[str, ...] = ()
    end: Solved | None = None

    @property
    def converged(self) -> bool:
        """Whether the optimizer stopped because it could not improve the fit any further."""
        return self.optimization.converged

    @property
    def errors(self) -> HostArray:
        """RMS error of each fitted recording, simulated from its fitted initial state, (R,)."""
        return self.train.errors

    @property
    def validation_errors(self) -> HostArray:
        """RMS error of each validation recording, from its recorded initial state, (V,)."""
        return self.validation.errors

    @property
    def residuals(self) -> tuple[HostArray, ...]:
        """Predicted minus observed values of the fitted recordings, (T, d) for each."""
        return self.train.residuals

    @cached_property
    def outliers(self) -> Outliers:
        return outliers(self.noise.residuals, self.train.recordings, self.residuals)

    @cached_property
    def identifiability(self) -> Identifiability:
        """Which numbers the recordings determine, and which changes leave all residuals alike."""
        return identifiability(self.names, self.values, self.information)

    @property
    def density(self) -> Density:
        """The residuals and the posterior density as functions of the unknowns.

        Raises:
            ValueError: if the fit was loaded from a file.
        """
        if self.end is None:
            raise ValueError(
                "A fit that was loaded from a file lacks the functions of the system, by which its "
                "density and functions of its parameters are evaluated; fit again, or propagate "
                "`uncertainty.covariance` by hand."
            )
        return Density(self.end)

    def log_density(self, unknowns: Any) -> Array:
        """The logarithm of the posterior density, but for a constant: that of `density`."""
        return self.density.log_density(jnp.asarray(unknowns))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to distrust the fit, each with a remedy."""
        open_ = ", ".join(compress(self.names, ~self.uncertainty.determined))
        message = f"The recordings do not determine {open_}: `identifiability` says what they do."
        return (*self.notes, *([message] if open_ else []))

    @property
    def data_notes(self) -> tuple[str, ...]:
        """What was done to the recordings as they were read, and how much of them is missing."""
        recordings = (*self.train.recordings, *self.validation.recordings)
        notes = tuple(dict.fromkeys(note for recording in recordings for note in recording.notes))
        missing = sum(int(np.isnan(recording.observed).sum()) for recording in recordings)
        count = sum(recording.observed.size for recording in recordings)
        return (*notes, f"{missing:,} of {count:,} measurements are missing") if missing else notes

    def function(self, fn: Callable[[Params], Any], kind: str = WHITE) -> Estimate:
        """The value of fn(params), a number, with its standard error (linear propagation).

        The latter is that of a `kind` of covariance, such as "by recording".
        """
        density = self.density

        def value(y: Array) -> tuple[Array, Array]:
            result = jnp.asarray(fn(density.params(y)), float)
            return result, result

        y, p = jnp.asarray(density.best), len(self.names)
        by_y, result = jax.jacrev(value, has_aux=True)(y)
        T = np.asarray(jax.jacfwd(density.numbers)(y))[:, :p]
        gradient = np.linalg.solve(T.T, np.asarray(by_y)[:p])
        return Estimate(float(result), self.uncertainty.of(gradient, kind))

    def save(self, path: Path | str) -> Path:
        """Save the fit, which `Fit.load` reads: all but the functions of the system.

        Args:
            path: the file, ending in `.npz`, which is returned.

        Raises:
            ValueError: if the parameters are not numbers and arrays in dictionaries, lists and
                tuples.
            OSError: if the file cannot be written.
        """
        arrays: dict[str, np.ndarray] = {}

        def packed(x: Any) -> Any:
            kind = type(x)
            if x is None or kind in (bool, int, float, str):
                return x
            if kind in (tuple, list):
                parts: Any = list(map(packed, x))
            elif kind is dict and all(type(key) in (str, int) for key in x):
                parts = [[key, packed(y)] for key, y in x.items()]
            elif kind in _CLASSES:
                parts = {key: packed(getattr(x, key)) for key in _CLASSES[kind]}
            elif isinstance(x, np.ndarray | np.generic | Array) and np.dtype(x.dtype).kind != "O":
                arrays[name := f"array_{len(arrays)}"] = np.asarray(x)
                return {"array": name}
            else:
                raise ValueError(
                    f"A fit with a parameter of type {kind.__name__} cannot be saved; parameters "
                    "must be numbers and arrays in dictionaries, lists and tuples."
                )
            return {kind.__name__: parts}

        # The structure around the arrays as JSON: nothing in the file is executed when it is read.
        text, path = json.dumps(packed(replace(self, end=None))), Path(path)
        write_whole(path, npz({"json": text, **arrays}, compressed=True))
        return path

    @staticmethod
    def load(path: Path | str) -> "Fit":
        """The fit of a file, with NumPy arrays as parameters.

        It prints the same, but `function` and `log_density` need the functions of the system.

        Raises:
            ValueError: if the file is damaged or contains something else.
            OSError: if the file cannot be read.
        """
        kinds: dict[str, Any] = {kind.__name__: kind for kind in (tuple, list, dict, *_CLASSES)}

        def unpacked(tree: Any) -> Any:
            if not isinstance(tree, dict):
                return tree
            ((kind, parts),) = tree.items()
            if kind == "array":
                return arrays[parts]
            if isinstance(parts, dict):
                return kinds[kind](**{key: unpacked(x) for key, x in parts.items()})
            if kind == "dict":
                return {key: unpacked(x) for key, x in parts}
            return kinds[kind](map(unpacked, parts))

        try:
            with Path(path).open("rb") as raw, np.load(raw) as file:
                if damaged := file.zip.testzip():  # NumPy alone does not read to the checksums
                    raise ValueError(f"{damaged} was changed")
                arrays = dict(file)
            fit: Fit = unpacked(json.loads(str(arrays["json"])))
            return fit
        except OSError:
            raise
        except Exception as error:
            raise ValueError(
                f"Argument `path` {path} must be a file that Fit.save of this version has written, "
                f"but is damaged or another file ({error}); fit again."
            ) from error

    def plot(self, *, sensors: Sequence[str] = (), figure: Any = None) -> Any:
        """Draw the first recordings: measurements over the fitted motion, and the residuals.

        Three recordings of the fit are drawn, and three of the validation.

        Args:
            sensors: names of the sensors, such as "angle [rad]"; those of unlike units have axes
                of their own.
            figure: a matplotlib figure to draw into; by default a new one, which
                `matplotlib.pyplot.show` shows.

        Returns:
            The `Panels`: `save("fit.png")` writes them; their `axes` can be changed, by name.
        """
        return DRAWINGS["Fit"](self, sensors, figure)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "not converged"
        recordings = counted(len(self.train.recordings), "recording")
        head = f"Fit: {counted(len(self.names), 'parameter')} to {recordings}"
        after = f"{self.optimization.evaluations} evaluations ({self.optimization.reason})"
        lines = [
            f"{head} ({self.count:,} measurements), {state}",
            *(f"  WARNING: {warning}" for warning in self.warnings),
            *(f"  {line}" for line in repr(self.uncertainty).splitlines()),
            f"  ended                       after {after}",
            f"  RMS error                   {_spread(self.errors)}",
        ]
        if len(self.validation.recordings):
            lines.append(f"  RMS error, validation       {_spread(self.validation_errors)}")
        noise = self.noise
        words = f"{noise.size:.3g} (relative to the weights)"
        if noise.sensors is not None:
            each = ", one for each sensor" if len(noise.sensors) > 1 else ""
            words = f"{', '.join(f'{sd:.3g}' for sd in noise.sensors)} (estimated{each})"
        lines.append(f"  noise                       {words}")
        if not noise.correlated and noise.residuals and len(self.outliers):
            lines += [f"  {line}" for line in repr(self.outliers).splitlines()]
        lines += [f"  data                        {note}" for note in self.data_notes]
        return "\n".join(lines)


def _spread(errors: HostArray) -> str:
    if errors.size == 1:
        return f"{errors[0]:.3g}"
    return f"{errors.mean():.3g} on average, {errors.min():.3g} to {errors.max():.3g}"


_CLASSES: dict[Any, tuple[str, ...]] = {Signal: ("ts", "values", "interpolation", "delay")} | {
    kind: tuple(x.name for x in fields(kind))
    for kind in (Covariance, Fit, Noise, Optimization, Predicted, Recording, Uncertainty)
}


_ACCURACY = 1e-3  # to which round-off may grow


def _too_long(task: Task, at: Point) -> str:
    """A warning if the longest segment is too long for its gradient, or an empty text.

    A gradient predicts changes in proportion. When a change of the size that matters has grown to
    the motion itself, the true change stays bounded while the predicted one goes on growing: the
    loss has many minima. When round-off has grown to the accuracy that is wanted, the motion
    depends on the order of the operations. The growth of a free initial state is known from the
    Jacobian.
    """
    s, p, n = task.data.segments, task.problem.layout.size, task.problem.system.n
    ts, last = np.asarray(s.ts), np.asarray(s.last)
    spans = ts[np.arange(len(last)), last] - ts[:, 0]
    k = int(np.argmax(spans))
    begin, end = (np.asarray(x, float)[k, p:].T for x in (at.slopes.begin, at.slopes.end))
    if not begin.any() or not np.isfinite(end).all():
        return ""
    transition = end @ np.linalg.pinv(begin)
    # the rate that makes coordinates comparable with velocities: of an oscillator its frequency
    stiffness, inertia = np.sum(transition[n:, :n] ** 2), np.sum(transition[:n, n:] ** 2)
    rate = (stiffness / inertia) ** 0.25 if stiffness > 0 and inertia > 0 else 1.0
    scale = np.repeat([rate, 1.0], [n, len(begin) - n])
    growth = float(np.linalg.norm(scale[:, None] * transition / scale, 2))
    change = float(np.clip(share(task, at), 1e-6, 0.1))  # that matters: that of the residuals
    most = min(1 / change, _ACCURACY / float(np.finfo(s.ts.dtype).eps))
    if growth < most:
        return ""
    doubling = spans[k] * np.log(2) / np.log(growth)
    length = doubling * min(np.log2(10), np.log2(most) / 2)
    return (
        f"Gradients through this motion mean little: changes of its state grow by a factor of 10^"
        f"{np.log10(growth):.0f} in {spans[k]:.3g} s, doubling every {doubling:.2g} s, while "
        f"a factor of {most:.1g} is too much for its residuals and round-off. Use shorter "
        f"segments, such as `initial_states=Shooting(length={length:.2g})`."
    )


def _remarks(
    solved: Solved, residuals: Sequence[np.ndarray], alike: Autocorrelation | None, far: Outliers
) -> Iterator[str]:
    """The warnings of a fit with independent residuals (T, d), in units of a stated noise."""
    task, at, error = solved.task, solved.at, solved.integration_error
    if not solved.end.converged:
        yield (
            f"Not converged, since {solved.end.reason}: allow more, start closer, or fit the "
            "beginning of the recordings first; where no step reduces the loss, take shorter steps "
            "or segments, or a smaller learning rate. The intervals are not valid yet."
        )
    steps, remedy = task.problem.scheme.steps, ""
    if is_too_coarse(task, at, error, converged=True):
        remedy = "give smaller tolerances, such as `steps=Adaptive(rtol=1e-9)`"
        if isinstance(steps, FixedSteps):
            number = needed_steps(task, at)
            remedy = f"give `steps=FixedSteps(per_save={number})`" if number > steps.count else ""
    if remedy:
        yield (
            f"Steps too coarse: the integration error, {percent(error)} of the motion, may move "
            f"the estimates by {largest_shift(task, at, error):.2g} standard errors; {remedy}."
        )
    for text in (_too_long(task, at), misfit(task, at, residuals, alike)):
        if text:
            yield text
    # A robust loss expects outliers, and where residuals are correlated they are not outliers.
    if len(far) and share(task, at) > EXACT and task.loss is None and alike is None:
        worst = far.samples[0]
        yield (
            f"Outliers: {len(far)} of {far.count:,} samples, the largest {abs(worst.sigmas):.3g} "
            f"standard deviations off in {worst.recording} at {worst.time:.6g} s. Correct or leave "
            "out what is wrong, or fit with loss=Huber()."
        )
    if solved.end.at_bound:
        names = task.problem.layout.names
        held = ", ".join(
            f"{names[k]} ({slope:.3g} of the loss for a change by one)"
            for k, slope in solved.end.at_bound
        )
        yield (
            f"At the bound: {held}. The recordings fit better beyond the bounds; fix the parameter "
            "there, or reconsider the model. Its interval is not valid."
        )


def result_of(solved: Solved, others: Sequence[Recording]) -> Fit:
    """The `Fit` at the end of an optimization, with predictions of recordings not fitted."""
    task, at, conditions, end = solved.task, solved.at, solved.conditions, solved.end
    data, origin, layout = task.data, task.origin, task.problem.layout
    z, u = data.parts(at.y, layout.size)

    # The noise, and the residuals in units of it.
    size, standard = standard_residuals(task, at, conditions)
    train = Predicted(origin.recordings, origin.gathered(at.run.predicted))
    alike = correlated(task, at, standard)
    far = outliers(standard, train.recordings, train.residuals)
    sensors = None if task.weighted else estimated(task, at, conditions)[1]
    noise = Noise(size, sensors, task.weighted, alike is not None, standard)

    # What the rows of the last step say about the numbers, and what was known before.
    uncertainty, information = assessed(
        task, at, conditions, noise=noise.unit, correlated=noise.correlated
    )
    with np.errstate(divide="ignore"):
        prior_sd = 1 / np.asarray(conditions.prior_weight, float)
    priors = np.stack([np.asarray(conditions.prior_mean, float), prior_sd], axis=1)

    # The fitted start variables; without `start` those of the state, on the constraints.
    starts, split = at.run.begin, task.problem.system.n
    if task.problem.start is not None:
        s = data.segments
        recorded = np.concatenate([np.asarray(s.q0), np.asarray(s.v0)], axis=1)
        starts, split = recorded + np.asarray(data.start_changes(u)), s.q0.shape[1]

    # Whole recordings that are not fitted, from their recorded initial states.
    validation = Predicted((), ())
    if others:
        stack, held = segments(others, step=task.longest)
        none = jnp.zeros((len(stack.q0), stack.start_size, 0))
        run = runs(task.problem, z, Data(stack, data.leaves, none))
        validation = Predicted(held.recordings, held.gathered(run.predicted))

    return Fit(
        params=task.params(at),
        names=layout.names,
        values=np.asarray(at.numbers),
        train=train,
        validation=validation,
        initial_states=tuple((x[:split], x[split:]) for x in np.asarray(starts)[origin.first]),
        optimization=Optimization(
            end.converged, end.reason, solved.history, solved.evaluations,
            at_bound={layout.names[k]: slope for k, slope in end.at_bound},
        ),
        uncertainty=uncertainty,
        information=information,
        noise=noise,
        count=task.count,
        unknowns=task.unknowns,
        integration_error=solved.integration_error,
        notes=tuple(_remarks(solved, standard, alike, far)),
        bounds=layout.bounds(data.leaves),
        priors=priors,
        end=solved,
    )  # fmt: skip
