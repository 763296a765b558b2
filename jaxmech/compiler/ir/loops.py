"""Loops that stay loops in the scalar graph, and the sequences that they read and save."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmech.compiler.ir.graph import Graph

LARGEST_ARRAY = 65_536  # numbers; of a larger one no scalars are made

Ids = np.ndarray  # node numbers, in the shape of the array that they stand for


class UnsupportedError(Exception):
    """Something that cannot be taken apart into scalars; the text says what it is."""


def dtype_of(atom: Any) -> np.dtype:
    """The type of a variable or a literal of a jaxpr."""
    return np.dtype(atom.aval.dtype)


def shape_of(atom: Any) -> tuple[int, ...]:
    """The shape of a variable or a literal of a jaxpr."""
    return tuple(atom.aval.shape)


@dataclass(frozen=True, eq=False)
class Given:
    """A sequence that comes from outside: number, iterations, shape and type of an element."""

    number: int
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Saved:
    """A sequence that a loop of the same graph saves: its place among all that the loop saves."""

    loop: int
    number: int
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Listed:
    """A sequence of nodes of the graph that holds the loop, shape (iterations, ...)."""

    ids: Ids
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an element."""
        return self.ids.shape[1:]


Steps = Given | Saved | Listed
Value = Ids | Given | Saved


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop with a graph of its own.

    Attributes:
        body: graph of one iteration, with leaves `carry` k, `element` (sequence, k) and `capture`.
        inner: the loops inside of the body.
        init: nodes of the graph around it, with which the carry starts.
        carry: nodes of the body, with which the carry goes on.
        reads: the sequences of which every iteration gets an element.
        saves: nodes of the body that every iteration saves.
        length: number of iterations.
        reverse: whether it goes from the last element to the first.
        place: how many nodes the graph around it had before its results.
    """

    body: Graph
    inner: "list[Loop]"
    init: list[int]
    carry: list[int]
    reads: list[Steps]
    saves: list[Ids]
    length: int
    reverse: bool
    place: int
