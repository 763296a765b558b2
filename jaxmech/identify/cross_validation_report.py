"""`CrossValidation`: how candidates predict what they were not fitted to, and the choice."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Rule = Literal["one-standard-error", "minimum"]
Score = Literal["recorded", "fitted"]


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """How well each candidate predicts what it was not fitted to; prints itself as a table.

    Attributes:
        names: of the candidates, C of them.
        numbers: how many numbers each of them fits, shape (C,).
        errors: RMS error of each recording when it was held out, shape (C, R); infinite where a
            candidate could not be fitted or simulated.
        folds: the fold of each recording, shape (R,).
        rule: by which one is chosen.
        score: from which start the held-out recordings were simulated.
    """

    names: tuple[str, ...]
    numbers: np.ndarray
    errors: np.ndarray
    folds: np.ndarray
    rule: Rule
    score: Score

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
        """Score of each candidate less that of the best, with its standard error, (C,) both."""
        best = self.by_fold[int(np.argmin(self.scores))]
        more = np.where(np.isfinite(self.by_fold), self.by_fold, np.inf) - best
        return more.mean(1), _standard_error(more)

    @property
    def chosen(self) -> str:
        """The candidate that the rule takes."""
        if self.rule == "minimum":
            return self.best
        more, error = self.excess
        near = np.flatnonzero(more <= np.where(np.isfinite(error), error, 0.0))
        return self.names[min(near, key=lambda k: (self.numbers[k], self.scores[k]))]

    @property
    def reason(self) -> str:
        """Why it is taken, in a sentence."""
        if self.chosen == self.best:
            simpler = self.numbers < self.numbers[self.names.index(self.best)]
            text = f"{self.chosen} has the smallest error"
            if self.rule == "minimum" or not simpler.any():
                return text
            return f"{text}, and no simpler candidate is within one standard error of it"
        more, error = (x[self.names.index(self.chosen)] for x in self.excess)
        return (
            f"{self.chosen} is the simplest within one standard error of {self.best}, which has "
            f"the smallest error: {more:.2g} more, known to {error:.2g}"
        )

    def __repr__(self) -> str:
        return "\n".join(_card(self))


def _standard_error(by_fold: np.ndarray) -> np.ndarray:
    finite = np.isfinite(by_fold).all(1)
    spread = np.where(finite[:, None], by_fold, 0.0).std(1, ddof=1)
    return np.where(finite, spread / np.sqrt(by_fold.shape[1]), np.nan)


def _card(found: CrossValidation) -> list[str]:
    width = max(len(name) for name in ("candidate", *found.names))
    start = "recorded" if found.score == "recorded" else "fitted"
    head = f"CrossValidation: {len(found.names)} candidates, {found.by_fold.shape[1]} folds of "
    titles = f"{'numbers':>9}{'error':>12}{'+-':>10}{'over best':>13}{'+-':>10}"
    lines = [
        f"{head}{len(found.folds)} recordings; RMS error of what was left out, {start} starts",
        f"    {'candidate':<{width}}{titles}",
    ]
    rows = zip(
        found.names, found.numbers, found.scores, found.standard_errors, *found.excess, strict=True
    )
    for name, numbers, score, error, more, more_error in rows:
        mark = "*" if name == found.chosen else " "
        cells = f"{numbers:>9}{score:>12.4g}{error:>10.2g}"
        if not np.isfinite(score):
            cells = f"{numbers:>9}{'failed':>12}"
        elif name != found.best:
            cells += f"{more:>13.2g}{more_error:>10.2g}"
        lines.append(f"  {mark} {name:<{width}}{cells}")
    return [*lines, f"  chosen (*) by the rule {found.rule}:", f"  {found.reason}"]
