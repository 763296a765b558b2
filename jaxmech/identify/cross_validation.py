"""`cross_validate`: which of several models the recordings choose, none of them judged by its own.

The recordings are split into k runs of neighbours, the folds. Each model is fitted k times, to all
folds but one, and judged by the one that was left out (Stone 1974). The error of a model is the
mean over the folds. Two errors are compared fold by fold, because what makes one fold harder than
another is the same for all models. The rule of one standard error takes the model with the fewest
numbers that is not worse than the best by more than the standard error of their difference
(Breiman, Friedman, Olshen and Stone 1984, section 3.4.3, there with the standard error of the best
by itself).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from tqdm import tqdm

from jaxmech.identify.cross_validation_report import CrossValidation, Rule, Score
from jaxmech.identify.data.recording import Recording, named
from jaxmech.identify.identifiable import Identifiable, Settings, fit_identifiable
from jaxmech.identify.optimize.gradient_descent import Descent
from jaxmech.identify.refit_starts import errors_with_fitted_starts


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
) -> CrossValidation:
    """Judges candidates by recordings that they were not fitted to.

    Args:
        candidates: by name; they may differ in system, parameters, sensors or bounds.
        recordings: all of those that may be used for the choice, in order: neighbours are left out
            together.
        folds: k, from 2 up to the number of recordings.
        rule: "one-standard-error" takes the one with the fewest numbers that is not worse than the
            best by more than the standard error of the difference; "minimum" the best.
        score: "recorded" simulates held-out recordings from their recorded start, "fitted" fits
            the start of each, with the parameters held.
        settings: how each fit is done. A `patience` would look at what is held out.
        folder: keeps what is done; the same call goes on from it.
        progress: whether to show how many fits are done.

    Returns:
        A `CrossValidation`.

    Raises:
        ValueError: an argument cannot be meant, or no candidate can be fitted.

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
    _require_possible(candidates, given, folds, rule, score, settings)
    fold_of = np.concatenate(
        [
            np.full(len(part), k)
            for k, part in enumerate(np.array_split(np.arange(len(given)), folds))
        ]
    )
    errors = np.full((len(candidates), len(given)), np.inf)
    numbers = np.zeros(len(candidates), int)
    if folder is not None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
    jobs = [(c, k) for c in range(len(candidates)) for k in range(folds)]
    names = tuple(candidates)
    for c, k in tqdm(jobs, unit=" fits", disable=None if progress else True):
        held = np.flatnonzero(fold_of == k)
        job = _Job(names[c], candidates[names[c]], given, held, score, settings)
        done = _kept(job, None if folder is None else folder / f"{c}-{k}")
        numbers[c], errors[c, held] = done.numbers, done.errors
    errors = np.where(np.isfinite(errors), errors, np.inf)
    if not np.isfinite(errors).all(1).any():
        raise ValueError(
            "Argument `candidates` must hold one that can be simulated along all recordings."
        )
    return CrossValidation(names, numbers, errors, fold_of, rule, score)


class _Job(NamedTuple):
    name: str
    candidate: Identifiable
    recordings: tuple[Recording, ...]
    held: np.ndarray
    score: Score
    settings: Settings


class _Done(NamedTuple):
    numbers: int
    errors: Sequence[float]


def _require_possible(
    candidates: Mapping[str, Identifiable],
    given: Sequence[Recording],
    folds: int,
    rule: str,
    score: str,
    settings: Settings,
) -> None:
    if not candidates:
        raise ValueError("Argument `candidates` must hold at least one.")
    if not 2 <= folds <= len(given):
        raise ValueError(
            f"Argument `folds` must lie between 2 and the number of recordings, {len(given)}, but "
            f"is {folds}; cut long recordings into several."
        )
    for name, value, known in (
        ("rule", rule, ("one-standard-error", "minimum")),
        ("score", score, ("recorded", "fitted")),
    ):
        if value not in known:
            raise ValueError(f"Argument `{name}` must be {known[0]!r} or {known[1]!r}.")
    if isinstance(settings.optimizer, Descent) and settings.optimizer.patience is not None:
        raise ValueError(
            "Argument `settings` must have an optimizer without `patience`, which would look at "
            "the recordings that are held out."
        )


def _kept(job: _Job, folder: Path | None) -> _Done:
    """The job, or what a file says about it."""
    if folder is None:
        return _computed(job, None)
    file, code = folder.with_suffix(".json"), _fingerprint(job)
    if file.is_file():
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts["fingerprint"] != code:
            raise ValueError(
                f"Argument `folder` {folder.parent} holds another cross-validation; name another "
                "folder, or remove it."
            )
        return _Done(facts["numbers"], facts["errors"])
    done = _computed(job, folder)
    facts = {"fingerprint": code, "candidate": job.name, **done._asdict()}
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(facts), encoding="utf-8")
    draft.replace(file)
    return done


def _computed(job: _Job, folder: Path | None) -> _Done:
    train = [one for k, one in enumerate(job.recordings) if k not in job.held]
    held = [job.recordings[k] for k in job.held]
    try:
        found = fit_identifiable(job.candidate, train, job.settings, validation=held, folder=folder)
    except FloatingPointError:
        return _Done(0, [np.inf] * len(held))
    except ValueError as error:
        raise ValueError(f"Candidate {job.name}: {error}") from error
    errors = found.validation_errors
    if job.score == "fitted":  # of all at once: one shape for all folds is compiled once
        every = errors_with_fitted_starts(job.candidate, found.params, job.recordings, job.settings)
        errors = every[job.held]
    return _Done(len(found.names), [float(x) for x in errors])


def _fingerprint(job: _Job) -> str:
    c = job.candidate
    told = [job.name, job.held.tolist(), job.score, c.system.coordinates, c.free, dict(c.bounds)]
    told += [dict(c.prior), jax.tree.structure(c.params), _policies(job.settings)]
    code = hashlib.sha256(repr(told).encode())
    arrays = [x for r in job.recordings for x in (r.ts, r.observed, r.q0, r.v0, r.weights)]
    for leaf in [*jax.tree.leaves(c.params), *arrays]:
        code.update(np.asarray(0.0 if leaf is None else leaf, float).tobytes())
    return code.hexdigest()


def _policies(settings: Settings) -> list[str]:
    """What is told apart; an optax transformation is a bundle of functions without a name."""
    kept = vars(settings).items()
    return [f"{name} {value!r}" for name, value in kept if not isinstance(value, Descent)]
