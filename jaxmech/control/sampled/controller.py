"""`Controller`: a function of the motion that is computed at sample times, and its held output."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known, naming_missing, require_function


@dataclass(frozen=True)
class Numbers:
    """The structure of a pytree of numbers, and the values that it has at the start of a run."""

    structure: Any
    leaves: tuple[np.ndarray, ...]
    names: list[str]
    start: list[float]

    @staticmethod
    def of(argument: str, tree: Any, name: str) -> "Numbers":
        """The structure of a tree of that name, or an error that names the argument."""
        if not is_known(tree):
            raise TypeError(
                f"Argument `{argument}` must hold known numbers, but a part of it is traced; give "
                "traced values in the `memory` of `simulate`."
            )
        leaves: list[np.ndarray] = []
        names: list[str] = []
        for path, x in jax.tree.leaves_with_path(tree):
            leaf = np.asarray(x)
            if leaf.dtype.kind not in "fiub" or not np.isfinite(leaf.astype(float)).all():
                raise ValueError(
                    f"Argument `{argument}` must hold finite real numbers, but holds {x!r}."
                )
            leaves.append(leaf)
            keys = jax.tree_util.keystr(path, simple=True, separator=".")
            whole = f"{name}.{keys}" if keys else name
            names += [whole + "".join(f"[{k}]" for k in index) for index in np.ndindex(leaf.shape)]
        start = [float(x) for leaf in leaves for x in leaf.ravel()]
        return Numbers(jax.tree.structure(tree), tuple(leaves), names, start)

    @property
    def size(self) -> int:
        """The number of numbers."""
        return len(self.names)

    def tree(self, x: Float[AnyArray, " s"]) -> Any:
        """The tree of a vector; integers and truth values are what they were."""
        parts, first = [], 0
        for leaf in self.leaves:
            part = x[first : first + leaf.size].reshape(leaf.shape)
            first += leaf.size
            if leaf.dtype.kind != "f":
                part = part > 0.5 if leaf.dtype.kind == "b" else part.round().astype(leaf.dtype)
            parts.append(part)
        return jax.tree.unflatten(self.structure, parts)

    def vector(self, what: str, tree: Any, dtype: Any) -> Float[Array, " s"]:
        """The vector of a tree that a function returned, or an error for another structure."""
        leaves, structure = jax.tree.flatten(tree)
        shapes, own = [np.shape(x) for x in leaves], [x.shape for x in self.leaves]
        if structure != self.structure or shapes != own:
            raise ValueError(
                f"{what} must have the structure and the shapes with which it starts, "
                f"{jax.tree.unflatten(self.structure, own)}, but has "
                f"{jax.tree.unflatten(structure, shapes)}."
            )
        if wrong := [x for x in leaves if jnp.result_type(x).kind not in "fiubV"]:
            kind = jnp.result_type(wrong[0])
            raise TypeError(f"{what} must hold real numbers, but is of type {kind}.")
        parts = [jnp.ravel(jnp.asarray(x)).astype(dtype) for x in leaves]
        return jnp.concatenate([jnp.zeros(0, dtype), *parts])


@dataclass(frozen=True, eq=False)
class Controller:
    """A controller with a sample time, whose output is held between its samples.

    At every time `phase + k period`, for whole numbers k, it measures the motion and computes its
    next output, which holds from `delay` later on until the following one takes its place
    (zero-order hold). The functions of a `controlled` system read the output as a parameter with
    the name of the controller, `params["torque"]`. Steps end at these times, so that no sample is
    missed and none is in a step, however long the steps are. At the start of a run a controller
    computes if that is one of its times; until it has, its output is `output`.

    Args:
        update: `update(measured, memory, t, params)`, which returns the next output and the next
            memory. `params` also holds the present outputs of all controllers; of several that
            compute at the same time, each one reads the new outputs of those listed before it.
        period: time from one sample to the next [s].
        memory: what the first `update` is given, any pytree of numbers, such as an integral or the
            last measurement; None for a controller without memory.
        output: the output before the first one: a number, a vector, or any pytree of them; all
            others have its structure.
        delay: time from a sample to its output [s], also of several periods; or the name of a
            parameter that holds it, which may then be differentiated, fitted and drawn.
        measure: `measure(q, v, t, params)`, what `update` is given as `measured`; by default q and
            v. v are the velocities of a `Solution`.
        phase: one of the sample times [s].
        longest_delay: the longest delay [s] where it is a parameter; by default one period.
        name: name of the output; by default that of `update`.

    Raises:
        TypeError: if a function is not callable.
        ValueError: if a time is not finite, the period is not positive, the delay is
            negative, or a number is not finite.

    Example:
        >>> def torque(measured, memory, t, params):
        ...     q, v = measured
        ...     return -params["gain"] * q[0] - 2.0 * v[0], memory
        >>> Controller(torque, 0.01, delay=0.004)
        Controller('torque', period=0.01, delay=0.004)
    """

    update: Callable[..., tuple[Any, Any]]
    period: float
    memory: Any = None
    output: Any = 0.0
    delay: float | str = 0.0
    measure: Callable[..., Any] | None = None
    phase: float = 0.0
    longest_delay: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        require_function("update", self.update, "measured, memory, t, params")
        if self.measure is not None:
            require_function("measure", self.measure, "q, v, t, params")
        name = self.name or getattr(self.update, "__name__", "")
        if not isinstance(name, str) or name in ("", "<lambda>"):
            raise ValueError(
                "Argument `name` must be a name, by which the output is read, but is "
                f"{self.name!r}; `update` has none of its own."
            )
        object.__setattr__(self, "name", name)
        if self.longest_delay is not None and not isinstance(self.delay, str):
            raise ValueError("Argument `longest_delay` must be left out where `delay` is a number.")
        for argument in ("period", "phase", "delay", "longest_delay"):
            value = getattr(self, argument)
            if value is None or (isinstance(value, str) and argument == "delay"):
                continue
            try:
                number = float(value)
            except (TypeError, ValueError, jax.errors.ConcretizationTypeError) as error:
                hint = "; a traced delay is given by the name of a parameter"
                raise TypeError(
                    f"Argument `{argument}` must be a known number, but is "
                    f"{value!r}{hint * (argument == 'delay')}."
                ) from error
            is_allowed = {"phase": True, "delay": number >= 0}.get(argument, number > 0)
            if not (math.isfinite(number) and is_allowed):
                need = {"phase": "finite", "delay": "0 or more"}.get(argument, "positive")
                raise ValueError(f"Argument `{argument}` must be {need}, but is {number:g}.")
            object.__setattr__(self, argument, number)
        if isinstance(self.output, list | tuple):
            object.__setattr__(self, "output", np.asarray(self.output))
        _, outputs = self.memories, self.outputs  # which check what is stated
        if not outputs.size:
            raise ValueError("Argument `output` must hold a number, but holds none.")

    def __repr__(self) -> str:
        late = f", delay={self.delay!r}" if self.delay else ""
        return f"Controller({self.name!r}, period={self.period:g}{late})"

    @cached_property
    def outputs(self) -> Numbers:
        """The structure of the output."""
        return Numbers.of("output", self.output, self.name)

    @cached_property
    def memories(self) -> Numbers:
        """The structure of the memory."""
        return Numbers.of("memory", self.memory, f"{self.name}.memory")

    @property
    def most_delay(self) -> float:
        """The longest delay [s]."""
        if not isinstance(self.delay, str):
            return self.delay
        return self.period if self.longest_delay is None else self.longest_delay

    @property
    def pending(self) -> int:
        """How many of the last outputs are kept until they hold."""
        if self.delay == 0:
            return 0
        return math.floor(self.most_delay / self.period * (1 + 1e-9)) + 1

    @property
    def memory_names(self) -> list[str]:
        """The names of its numbers: output, memory, number of the last sample, later outputs."""
        outputs = self.outputs.names
        later = [f"{output}.pending[{k}]" for k in range(self.pending) for output in outputs]
        return [*outputs, *self.memories.names, f"{self.name}.sample", *later]

    def computed(
        self, q: Array, v: Array, memory: Float[Array, " m"], t: Array, params: Any
    ) -> tuple[Float[Array, " o"], Float[Array, " m"]]:
        """The next output and memory, as vectors, of a motion that is measured."""
        part, measured = f"controller {self.name!r}", (q, v)
        if self.measure is not None:
            with naming_missing(f"`measure` of {part}", params):
                measured = self.measure(q, v, t, params)
        with naming_missing(f"`update` of {part}", params):
            result = self.update(measured, self.memories.tree(memory), t, params)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"`update` of {part} must return its output and its memory as a tuple of two, but "
                f"returned {type(result).__name__}; end it with `return output, memory`."
            )
        output = self.outputs.vector(f"The output of {part}", result[0], memory.dtype)
        following = self.memories.vector(f"The memory of {part}", result[1], memory.dtype)
        return output, following
