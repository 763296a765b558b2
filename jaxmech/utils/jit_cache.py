"""`jax.jit` of functions of systems, whose programs are dropped again.

`jax.jit` keeps the programs of every static argument. Here these are systems, so a process that
creates one system after another would keep the programs of all of them. `jit_of` keeps those of the
systems used last; `traced_once` keeps those of a method with its object. `kept_by` keeps results.

A program belongs to an object and to what its functions read besides their arguments
(`jaxmech.utils.captures`). So it is not used for an object whose attributes have changed.
"""

import gc
import inspect
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from functools import cache, lru_cache, partial, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.utils.captures import UNCHANGING, captures_of
from jaxmech.utils.checks import has_finite_numbers, is_known
from jaxmech.utils.jax_internals import HAS_OLDER_EMITTERS, Tracer, eval_context

P = ParamSpec("P")
R = TypeVar("R")


def uncollected(fn: Callable[P, R]) -> Callable[P, R]:
    """Put off garbage collection to the end of a function that allocates many lasting objects.

    Python searches all objects of a process for cycles whenever a quarter more have been allocated,
    which takes a seventh of the time of tracing and reading a program.
    """

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return fn(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return run


# The attribute of an object that names another one whose methods compute the same.
TRACED_AS = "_traced_as"
KEPT = 32  # number of static arguments for which a function keeps its programs


# Whether the known arguments of the program being lowered are neither NaN nor infinite.
FINITE_ARGUMENTS = ContextVar("finite_arguments", default=False)


def jit_of(
    *static: str, is_frame: bool = False, is_finite: bool = False, is_brief: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`jax.jit` with named static arguments, which keeps the most recently used programs only.

    Args:
        static: names of the static arguments.
        is_frame: whether the function leaves its work to native code. XLA then compiles the rest
            without optimization, unless it is long or holds a loop, or the call is part of another
            program.
        is_finite: whether the arguments of a frame are finite as a rule where they are known. In
            its native code a product with zero is folded where they alone could make it NaN: at
            rest these are most products of velocities. A call with NaN or infinity compiles a
            program of its own.
        is_brief: whether a frame computes so briefly that XLA need never optimize it: algebra of
            known matrices, once or a few times.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(fn)

        def program(*values: Any) -> Callable[..., Any]:
            # JAX drops the programs of a function together with the function.
            specialized = partial(fn, **dict(zip(static, values, strict=True)))
            return _Frame(specialized, is_finite, is_brief) if is_frame else jax.jit(specialized)

        programs = _Kept(program, KEPT)

        @wraps(fn)
        @uncollected
        def run(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            values = tuple(arguments.pop(name) for name in static)
            return programs.use(values, lambda program: program(**arguments))

        return run

    return decorate


def kept_by(size: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Keep the last results of a function, by its arguments and by what functions in them read."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        results = _Kept(fn, size)

        @wraps(fn)
        def run(*args: Any) -> Any:
            return results.use(args, lambda result: result)

        return run

    return decorate


class _Kept:
    """The results of a function for the arguments used last."""

    def __init__(self, fn: Callable[..., Any], size: int) -> None:
        self.fn = fn
        self.slot = lru_cache(maxsize=size)(self._slot)

    @staticmethod
    def _slot(args: tuple[Any, ...], read: Hashable) -> list[Any]:
        return []

    def use(self, args: tuple[Any, ...], use: Callable[[Any], Any]) -> Any:
        """Apply a function to the result for some arguments."""
        with UNCHANGING:
            slot = self.slot(args, captures_of(args).key())
            if not slot:
                slot.append(self.fn(*args))
            return use(slot[0])


def traced_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a method once for all its uses and their derivatives, by `jax.jit` of it.

    Its jaxpr appears as a call, so that a program that uses the method many times is traced,
    differentiated and batched in a fraction of the time. The object must not change, but what its
    functions read may. The programs are kept with the object, or with its `TRACED_AS`.
    """
    name = f"_traced_{method.__name__}"

    @wraps(method)
    def run(self: Any, *args: Any) -> Any:
        with UNCHANGING:
            kept_by = self.__dict__.get(TRACED_AS, self)
            key = captures_of(kept_by).key()
            kept_key, program = kept_by.__dict__.get(name, (None, None))
            if program is None or key != kept_key:
                program = jax.jit(partial(method, kept_by))
                kept_by.__dict__[name] = key, program
            return program(*args)

    return run


_BRIEF: dict[str, Any] = {"xla_backend_optimization_level": 0}  # a sixth of the time of compiling
if HAS_OLDER_EMITTERS:
    _BRIEF["xla_cpu_use_fusion_emitters"] = False
# Fused operations compute an intermediate number once for each of its uses. Without optimization
# the product in a * b + c is rounded for one use and not for another, so that the largest of
# several numbers equals none of them, and its gradient is NaN. Without fusion, but with the
# algebraic simplifier, the compiler of jaxlib 0.9 takes the transposed factor of a product of
# matrices for the factor itself.
UNOPTIMIZED = {**_BRIEF, "xla_disable_hlo_passes": "fusion,algsimp"}

_LONGEST_FRAME = 500  # lines of a program
_FRAMES = WeakSet["_Frame"]()


class _Frame:
    """`jax.jit` of a function that passes its arguments to native code and arranges the results."""

    def __init__(self, fn: Callable[..., Any], is_finite: bool, is_brief: bool) -> None:
        self.is_finite, self.is_brief = is_finite, is_brief
        # Another object, since JAX lowers a function once for all its uses.
        self.of_any = _Frame(partial(fn), False, is_brief) if is_finite else None
        self.optimized = jax.jit(fn)
        self.unoptimized = jax.jit(fn, compiler_options=_BRIEF if is_brief else UNOPTIMIZED)
        self.chosen: dict[Any, Callable[..., Any]] = {}  # by the kinds of the arguments
        _FRAMES.add(self)

    def __call__(self, **arguments: Any) -> Any:
        # JAX accepts options of compilation for the outermost program only.
        if not is_known(arguments) or is_inside_a_program():
            return self.optimized(**arguments)
        if self.of_any is not None and not has_finite_numbers(arguments):
            return self.of_any(**arguments)
        token = FINITE_ARGUMENTS.set(self.is_finite)
        try:
            leaves, structure = jax.tree.flatten(arguments)
            kinds = structure, *map(jax.typeof, leaves)
            if kinds not in self.chosen:
                self.chosen[kinds] = self._choice(arguments)
            return self.chosen[kinds](**arguments)
        finally:
            FINITE_ARGUMENTS.reset(token)

    def _choice(self, arguments: dict[str, Any]) -> Callable[..., Any]:
        """Optimized if it is long, or has a loop or constants that are traced, else not."""
        if jax.default_backend() != "cpu":
            return self.optimized
        if self.is_brief:
            return self.unoptimized
        if not is_known(jax.make_jaxpr(self.optimized)(**arguments).consts):
            return self.optimized
        text = self.unoptimized.lower(**arguments).as_text()  # used by the call that follows
        is_long = "stablehlo.while" in text or text.count("\n") >= _LONGEST_FRAME
        return self.optimized if is_long else self.unoptimized


def is_inside_a_program() -> bool:
    """Whether operations are traced here, even those of known values."""
    if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
        return True
    return isinstance(jax.device_put(_number()), Tracer)


@cache
def _number() -> jax.Array:
    # On the device: transferring a number compiles nothing, converting it does.
    with eval_context():
        return jnp.asarray(np.zeros(()))


def forget_frames() -> None:
    """Decide again which programs are compiled without optimization."""
    for frame in _FRAMES:
        frame.chosen.clear()
