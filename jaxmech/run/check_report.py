"""`GradientCheck`: the result of `check_gradients`."""

import textwrap
from dataclasses import dataclass

import numpy as np

from jaxmech.run.nan_origins import REMEDY, NanOrigin
from jaxmech.run.tangents import Sweep
from jaxmech.utils.arrays import HostArray

START = "start"
_SAFETY = 3.0  # factor on the uncertainty of a difference, which is an estimate itself
_PLATEAU = 0.01  # relative uncertainty above which there is no plateau


@dataclass(frozen=True, eq=False, repr=False)
class GradientCheck:
    """Derivatives of a loss through a whole motion in three ways; prints itself as a table.

    Attributes:
        names: names of the parameter numbers, and "start" for a change of the initial state along
            the constraints; P in all.
        reverse: `jax.grad` through `simulate`, shape (P,).
        forward: forward mode, shape (P,); None where a function has a rule for reverse mode only.
        sweep: central differences over all step sizes, and the best of them.
        loss: the value of the loss.
        steps: number of steps of the motion.
        tolerance: relative error that is allowed besides the uncertainty of a difference.
        round_off: error allowed for a derivative that should be zero, shape (P,).
        origins: origins of a NaN derivative, by the name of the derivative.
    """

    names: tuple[str, ...]
    reverse: HostArray
    forward: HostArray | None
    sweep: Sweep
    loss: float
    steps: int
    tolerance: float
    round_off: HostArray
    origins: dict[str, tuple[NanOrigin, ...]]

    @property
    def difference(self) -> HostArray:
        """The best central differences, shape (P,); NaN where there is no plateau."""
        return self.sweep.values

    @property
    def uncertainty(self) -> HostArray:
        """Their uncertainties, shape (P,)."""
        return self.sweep.uncertainties

    @property
    def verdicts(self) -> tuple[str, ...]:
        """For each derivative "agrees", "differs", "NaN", "forward NaN" or "no plateau"."""
        return tuple(self._verdict(k) for k in range(len(self.names)))

    @property
    def ok(self) -> bool:
        """Whether all derivatives agree in all ways."""
        return all(verdict == "agrees" for verdict in self.verdicts)

    def _verdict(self, k: int) -> str:
        if not np.isfinite(self.reverse[k]):
            return "NaN"
        value, doubt = self.difference[k], self.uncertainty[k]
        weighted = np.abs(self.difference * self.sweep.scales)
        matters = np.max(weighted[np.isfinite(weighted)], initial=0.0) / self.sweep.scales[k]
        if not doubt <= max(_PLATEAU * abs(value), self.tolerance * matters, self.round_off[k]):
            return "no plateau"
        allowed = self.tolerance * abs(value) + _SAFETY * doubt + self.round_off[k]
        if abs(self.reverse[k] - value) > allowed:
            return "differs"
        if self.forward is None or abs(self.forward[k] - value) <= allowed:
            return "agrees"
        return "differs" if np.isfinite(self.forward[k]) else "forward NaN"

    def __repr__(self) -> str:
        agreeing = sum(verdict == "agrees" for verdict in self.verdicts)
        title = (
            f"GradientCheck: {agreeing} of {len(self.names)} derivatives agree "
            f"({self.steps:,} steps, loss {self.loss:.6g})"
        )
        width = max(map(len, ("name", *self.names)))
        titles = ("reverse", "forward", "difference", "uncertainty")
        head = f"  {'name':<{width}}" + "".join(f"{title:>18}" for title in titles)
        lines = [title, f"{head}  verdict"]
        for k, name in enumerate(self.names):
            forward = "none" if self.forward is None else f"{self.forward[k]:.10g}"
            numbers = f"{self.reverse[k]:>18.10g}{forward:>18}"
            numbers += f"{self.difference[k]:>18.10g}{self.uncertainty[k]:>18.1g}"
            lines.append(f"  {name:<{width}}{numbers}  {self.verdicts[k]}")
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        notes: dict[str, list[str]] = {}
        for k, name in enumerate(self.names):
            if self.verdicts[k] != "agrees":
                notes.setdefault(self._note(k), []).append(name)
        lines = [f"{', '.join(names)}: {note}" for note, names in notes.items()]
        lines += [f"remedy: {REMEDY}"] if any(self.origins.values()) else []
        if self.forward is None:
            lines.append("forward: none, because a function has a rule for reverse mode only")
        wrap = textwrap.TextWrapper(100, initial_indent="  ", subsequent_indent="    ")
        return [part for line in lines for part in wrap.wrap(line)]

    def _note(self, k: int) -> str:
        verdict = self.verdicts[k]
        if verdict == "no plateau":
            return (
                "the finite differences do not converge. The loss is not smooth there, or the "
                "motion is chaotic over this time: use a shorter one"
            )
        if verdict == "differs":
            return self._suspect(k)
        origins = "; ".join(map(str, self.origins.get(self.names[k], ())))
        return f"{verdict}; {origins or 'its origin was not found'}"

    def _suspect(self, k: int) -> str:
        if self.forward is not None:
            value = self.difference[k]
            reverse, forward = abs(self.reverse[k] - value), abs(self.forward[k] - value)
            if min(reverse, forward) < 1e-2 * max(reverse, forward):
                mode = "reverse" if reverse > forward else "forward"
                return f"only {mode} mode is wrong: look for a derivative rule of that mode alone"
        return (
            "differs; a function has a wrong derivative rule (`custom_jvp`, `custom_vjp`), blocks "
            "the derivative (`stop_gradient`), or jumps (`sign`, `where`, `floor`)"
        )
