"""`cross_validate`: choose among models by recordings to which they were not fitted.

The recordings are split into k sequences of neighbours, the folds. Each model is fitted k times, to
all folds but one, and tested on the one that was left out (Stone 1974). The error of a model is the
mean over the folds. Errors are compared fold by fold, because a fold that is hard for one model is
hard for all. The rule of one standard error takes the model with the fewest parameters that is not
worse than the best by more than the standard error of their difference (Breiman, Friedman, Olshen
and Stone 1984, section 3.4.3, who use the standard error of the best model alone).
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np
from tqdm import tqdm

from jaxmech.config import write_whole
from jaxmech.identify.data.recording import Recording, named
from jaxmech.identify.fit import fit_identifiable
from jaxmech.identify.identifiable import Identifiable, MapLike, Settings, subject_digests
from jaxmech.identify.optimize.gradient_descent import Descent
from jaxmech.identify.optimize.trust_region import TrustRegion, minimize
from jaxmech.identify.problem.parameters import parameters
from jaxmech.identify.problem.rows import Evaluator
from jaxmech.identify.problem.setup import prepare
from jaxmech.identify.result import Predicted
from jaxmech.system import Params
from jaxmech.utils.digests import arrays_digest, sha256

Rule = Literal["one-standard-error", "minimum"]
Score = Literal["recorded", "fitted"]

_REFIT = TrustRegion(tolerance=1e-10)  # of initial states alone


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """The errors of candidates on recordings to which they were not fitted; prints itself.

    The result of `cross_validate`.
    """

    names: tuple[str, ...]  # names of the C candidates
    numbers: np.ndarray  # numbers of fitted parameters of each, (C,)
    errors: np.ndarray  # RMS of each recording when held out, infinite after a failure, (C, R)
    folds: np.ndarray  # the fold of each recording, (R,)
    converged: np.ndarray  # whether each fit without one fold converged, (C, k)
    rule: Rule  # for the choice
    score: Score  # whether held-out recordings began at recorded or at fitted initial states

    @property
    def by_fold(self) -> np.ndarray:
        """Mean error of each candidate over the recordings of each fold, shape (C, k)."""
        count = int(self.folds.max()) + 1
        return np.stack([self.errors[:, self.folds == k].mean(1) for k in range(count)], axis=1)

    @property
    def scores(self) -> np.ndarray:
        """Mean error of each candidate, shape (C,)."""
        return self.by_fold.mean(1)

    @property
    def standard_errors(self) -> np.ndarray:
        """Standard errors of the scores, from their scatter over the folds, shape (C,)."""
        return _standard_error(self.by_fold)

    @property
    def best(self) -> str:
        """The candidate with the smallest score."""
        return self.names[int(np.argmin(self.scores))]

    @property
    def excess(self) -> tuple[np.ndarray, np.ndarray]:
        """Score of each candidate minus that of the best, and its standard error, (C,) each."""
        best = self.by_fold[int(np.argmin(self.scores))]
        excess = np.where(np.isfinite(self.by_fold), self.by_fold, np.inf) - best
        return excess.mean(1), _standard_error(excess)

    @property
    def chosen(self) -> str:
        """The candidate that the rule chooses."""
        if self.rule == "minimum":
            return self.best
        excess, error = self.excess
        near = np.flatnonzero(excess <= np.where(np.isfinite(error), error, 0.0))
        return self.names[min(near, key=lambda k: (self.numbers[k], self.scores[k]))]

    @property
    def reason(self) -> str:
        """The reason for the choice, in a sentence."""
        if self.chosen == self.best:
            simpler = self.numbers < self.numbers[self.names.index(self.best)]
            reason = f"{self.chosen} has the smallest error"
            if self.rule == "minimum" or not simpler.any():
                return reason
            return f"{reason}, and no simpler candidate is within one standard error of it"
        excess, error = (x[self.names.index(self.chosen)] for x in self.excess)
        return (
            f"{self.chosen} is the simplest within one standard error of {self.best}, which has "
            f"the smallest error: {excess:.2g} more, known to {error:.2g}"
        )

    def __repr__(self) -> str:
        width = max(len(name) for name in ("candidate", *self.names))
        head = f"CrossValidation: {len(self.names)} candidates, {self.by_fold.shape[1]} folds of "
        titles = f"{'numbers':>9}{'error':>12}{'+-':>10}{'over best':>13}{'+-':>10}"
        lines = [
            f"{head}{len(self.folds)} recordings; RMS error of those left out, {self.score} starts",
            f"    {'candidate':<{width}}{titles}",
        ]
        rows = zip(
            self.names, self.numbers, self.scores, self.standard_errors, *self.excess, strict=True
        )
        for name, numbers, score, error, excess, excess_error in rows:
            mark = "*" if name == self.chosen else " "
            cells = f"{numbers:>9}{score:>12.4g}{error:>10.2g}"
            if not np.isfinite(score):
                cells = f"{numbers:>9}{'failed':>12}"
            elif name != self.best:
                cells += f"{excess:>13.2g}{excess_error:>10.2g}"
            lines.append(f"  {mark} {name:<{width}}{cells}")
        lines += [f"  chosen (*) by the rule {self.rule}:", f"  {self.reason}"]
        return "\n".join([*lines, *self._unconverged()])

    def _unconverged(self) -> list[str]:
        """A warning that names the candidates whose fits ended early."""
        missed = (~self.converged & np.isfinite(self.by_fold)).sum(1)
        if not missed.any():
            return []
        folds = self.converged.shape[1]
        counts = ", ".join(
            f"{name} ({count} of {folds} fits)"
            for name, count in zip(self.names, missed, strict=True)
            if count
        )
        return [f"  WARNING: Not converged, so that errors may be too large: {counts}"]


def _standard_error(by_fold: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NaN where a fold is infinite
        return by_fold.std(1, ddof=1) / np.sqrt(by_fold.shape[1])


def cross_validate(
    candidates: Mapping[str, Identifiable],
    recordings: Any,
    *,
    folds: int = 5,
    rule: Rule = "one-standard-error",
    score: Score = "recorded",
    settings: Settings = Settings(),
    folder: Path | None = None,
    progress: bool = False,
    workers: MapLike = map,
) -> CrossValidation:
    """Judge candidates by recordings to which they were not fitted.

    Args:
        candidates: models by name; they may differ in system, parameters, sensors or bounds.
        recordings: the recordings, in order; neighbouring ones are left out together.
        folds: number of folds k, from 2 up to the number of recordings.
        rule: "one-standard-error" chooses the candidate with the fewest parameters that is not
            worse than the best by more than the standard error of the difference; "minimum" chooses
            the best.
        score: "recorded" simulates held-out recordings from their recorded initial states, "fitted"
            fits the initial state of each, with fixed parameters.
        settings: settings of each fit. Avoid an optimizer with `patience`, which would use the
            held-out data.
        folder: folder in which finished fits are saved, so that the same call resumes.
        progress: whether to show the number of finished fits.
        workers: a function like `map` with which the fits are computed, such as the `map` of
            `jaxmech.ensemble.cluster_tasks`; by default they run one after the other in this
            process.

    Raises:
        ValueError: if an argument is invalid, or no candidate can be fitted.

    Example:
        >>> import jaxmech as jm
        >>> ts = np.linspace(0.0, 1.0, 21)
        >>> swings = [Recording(ts, a * np.cos(3 * ts), [a], [0.0]) for a in (0.5, 1.0)]
        >>> spring = jm.System(
        ...     lambda q, v, t, p: (v @ v - p["k"] * q @ q) / 2, coordinates=("x",)
        ... )
        >>> weight = jm.System(
        ...     lambda q, v, t, p: v @ v / 2 - p["g"] * q[0], coordinates=("x",)
        ... )
        >>> candidates = {
        ...     "spring": Identifiable(spring, {"k": 8.0}),
        ...     "weight": Identifiable(weight, {"g": 8.0}),
        ... }
        >>> cross_validate(candidates, swings, folds=2).chosen
        'spring'
    """
    given = named(recordings, "recordings")
    if not candidates:
        raise ValueError("Argument `candidates` must hold at least one.")
    if not 2 <= folds <= len(given):
        raise ValueError(
            f"Argument `folds` must lie between 2 and the number of recordings, {len(given)}, but "
            f"is {folds}; cut long recordings into several."
        )
    _require_policies(rule, score, settings)
    fold_of = np.sort(np.arange(len(given)) % folds)  # neighbours, in folds of nearly one size
    errors = np.full((len(candidates), len(given)), np.inf)
    numbers = np.zeros(len(candidates), int)
    converged = np.zeros((len(candidates), folds), bool)
    if folder is not None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        _Job(c, name, candidate, given, k, np.flatnonzero(fold_of == k), score, settings,
             folder and folder.resolve() / f"{c}-{k}")
        for c, (name, candidate) in enumerate(candidates.items())
        for k in range(folds)
    ]  # fmt: skip
    hidden = None if progress else True
    results = tqdm(workers(_done, jobs), total=len(jobs), unit=" fits", disable=hidden)
    for job, tested in zip(jobs, results, strict=True):
        numbers[job.number], errors[job.number, job.held] = tested.numbers, tested.errors
        converged[job.number, job.fold] = tested.converged
    errors = np.where(np.isfinite(errors), errors, np.inf)
    if not np.isfinite(errors).all(1).any():
        raise ValueError(
            "Argument `candidates` must hold one that can be simulated along all recordings."
        )
    return CrossValidation(tuple(candidates), numbers, errors, fold_of, converged, rule, score)


class _Tested(NamedTuple):
    numbers: int  # of fitted parameters
    errors: Sequence[float]  # of the held-out recordings
    converged: bool


class _Job(NamedTuple):
    number: int  # index of the candidate
    name: str
    candidate: Identifiable
    recordings: tuple[Recording, ...]
    fold: int
    held: np.ndarray
    score: Score
    settings: Settings
    folder: Path | None  # for its result and state


def _require_policies(rule: str, score: str, settings: Settings) -> None:
    for name, value, known in (("rule", rule, get_args(Rule)), ("score", score, get_args(Score))):
        if value not in known:
            raise ValueError(f"Argument `{name}` must be {known[0]!r} or {known[1]!r}.")
    if isinstance(settings.optimizer, Descent) and settings.optimizer.patience is not None:
        raise ValueError(
            "Argument `settings` must have an optimizer without `patience`, which would use the "
            "recordings that are held out."
        )


def _done(job: _Job) -> _Tested:
    """Run a job, or read its file."""
    if job.folder is None:
        return _computed(job)
    file, code = job.folder.with_suffix(".json"), _fingerprint(job)
    if file.is_file():
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts["fingerprint"] != code or "converged" not in facts:
            raise ValueError(
                f"Argument `folder` {job.folder.parent} holds another cross-validation; name "
                "another folder, or remove it."
            )
        return _Tested(facts["numbers"], facts["errors"], facts["converged"])
    tested = _computed(job)
    facts = {"fingerprint": code, "candidate": job.name, **tested._asdict()}
    write_whole(file, json.dumps(facts))
    return tested


def _computed(job: _Job) -> _Tested:
    train = [recording for k, recording in enumerate(job.recordings) if k not in job.held]
    validation = [job.recordings[k] for k in job.held]
    try:
        fitted = fit_identifiable(
            job.candidate, train, job.settings, validation=validation, folder=job.folder
        )
    except FloatingPointError:
        return _Tested(0, [np.inf] * len(validation), converged=False)
    except ValueError as error:
        raise ValueError(f"Candidate {job.name}: {error}") from error
    errors = fitted.validation_errors
    if job.score == "fitted":  # of all recordings, so that all folds share one compilation
        all_errors = errors_with_fitted_starts(
            job.candidate, fitted.params, job.recordings, job.settings
        )
        errors = all_errors[job.held]
    return _Tested(len(fitted.names), errors.tolist(), fitted.converged)


def _fingerprint(job: _Job) -> str:
    # not the optimizer `Descent`: an optax transformation is a bundle of functions without names
    policies = [f"{k} {x!r}" for k, x in vars(job.settings).items() if not isinstance(x, Descent)]
    subject = subject_digests(job.candidate, job.recordings[0])
    arrays = [
        (r.ts, r.observed, r.q0, r.v0, r.weights, r.start_sd, r.inputs, r.periods)
        for r in job.recordings
    ]
    leaves, structure = jax.tree.flatten(arrays)
    facts = job.name, job.held.tolist(), job.score, subject, policies, structure
    return sha256(repr(facts), arrays_digest(*leaves))


def errors_with_fitted_starts(
    subject: Identifiable, params: Params, recordings: Sequence[Recording],
    settings: Settings = Settings(),
) -> np.ndarray:  # fmt: skip
    """RMS errors (R,) of recordings with only their initial states fitted; NaN after a failure.

    Warns if the initial states have not converged.
    """
    # A wrong model shows in them even where recorded initial states have larger errors than the
    # model, as long as the recordings are so long that an initial state cannot make up for it.
    first = parameters(params).layout.names[0].partition("[")[0]
    subject_at_solution = replace(subject, params=params, free=(first,), bounds={}, prior={})
    weighted = [
        recording if recording.weights is not None else replace(recording, start_sd=None)
        for recording in recordings
    ]
    task = prepare(
        subject_at_solution, weighted, replace(settings, initial_states="free", horizon=None)
    )
    y, no_parameters = task.y[task.problem.layout.size :], np.zeros(0)
    problem = replace(task.problem, layout=replace(task.problem.layout, free=(), names=()))
    task = replace(
        task,
        problem=problem,
        evaluator=Evaluator(problem, task.data, task.origin.recording),
        conditions=replace(task.conditions, prior_mean=no_parameters, prior_weight=no_parameters),
    )
    end = minimize(_REFIT, task, y, task.conditions, lambda _: None)
    if not end.converged:
        message = "the fitted initial states have not converged, so these errors may be too large"
        warnings.warn(f'{message}; compare with score="recorded"', stacklevel=2)
    predicted = task.evaluator.at(end.y).run.predicted
    return Predicted(task.origin.recordings, task.origin.gathered(predicted)).errors
