"""The order in which blocks are eliminated, found on the host from the graph of the blocks.

In every round an independent set of blocks is eliminated, no two of which are neighbours, so that a
chain of n blocks takes about log2 n rounds (cyclic reduction; for general graphs a nested
dissection from below). Eliminating a block joins its neighbours: new blocks off the diagonal, the
fill, appear where they had none. Blocks with few neighbours come first (minimum degree).

Rounds of similar size make a *phase*. Their indices are padded to one length, so that a phase is a
loop, compiled once. Every phase has numbers of its own for the blocks that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

Indices = NDArray[np.int64]
_RATIO = 4  # of the pivots in two rounds of a phase
_FEW = 64  # blocks that make one phase, whatever the rounds

# The blocks that a round eliminates, each with its neighbours at that time.
_Round = dict[int, list[int]]


def with_zero(values: Array) -> Array:
    """Values with a zero after the last one, for places without a value."""
    zero = jnp.zeros((*values.shape[:-1], 1), values.dtype)
    return jnp.concatenate([values, zero], axis=-1)


def gathered(values: Array, table: Array | Indices) -> Array:
    """For every column of a table (c, k) of places, the sum of the values there, (..., k)."""
    padded = with_zero(values)
    total = padded[..., table[0]]
    for row in table[1:]:
        total = total + padded[..., row]
    return total


def table_of(places: Sequence[int] | Indices, size: int, pad: int) -> Indices:
    """The table (c, size) with which `gathered` adds up values by their `places`."""
    places = np.asarray(places, int)
    counts = np.bincount(places, minlength=size)
    table = np.full((max(counts.max(initial=0), 1), size), pad)
    order = np.argsort(places, kind="stable")
    first = np.cumsum(counts) - counts
    table[np.arange(order.size) - first[places[order]], places[order]] = order
    return table


@dataclass(frozen=True, eq=False)
class Phase:
    """R rounds that eliminate up to P of K blocks each, which have e edges; Q edges are at pivots.

    Places beyond the last one are padding, and stand for zero.

    Attributes:
        blocks: the place of each block in the phase before, (K,).
        later: the place of each block of the phase before among these, K for none.
        edges: the place of each edge in the phase before; beyond its last for fill, (e,).
        pivots: the blocks that are eliminated, (R, P).
        position: the place of each block among the pivots, P for the others, (R, K).
        beside: for each edge at a pivot v, to w, the place of S_vw among the edges, beyond e of the
            transposed block, (R, Q).
        pivot: the pivot of each edge, (R, Q).
        end: the block w of each edge, (R, Q).
        at_blocks: table of the edges that end at each block, (R, c, K).
        at_pivots: table of the edges of each pivot, (R, c, P).
        first, second: pairs of edges of a pivot, which change the block between their ends, (R, F).
        at_edges: table of the pairs that change each edge, (R, c, e).
    """

    blocks: Indices
    later: Indices
    edges: Indices
    pivots: Indices
    position: Indices
    beside: Indices
    pivot: Indices
    end: Indices
    at_blocks: Indices
    at_pivots: Indices
    first: Indices
    second: Indices
    at_edges: Indices

    @property
    def rounds(self) -> dict[str, Indices]:
        """The indices that each round has of its own."""
        names = "pivots", "position", "beside", "pivot", "end", "at_blocks", "at_pivots"
        return {name: getattr(self, name) for name in (*names, "first", "second", "at_edges")}


@dataclass(frozen=True, eq=False)
class EliminationOrder:
    """The phases of an elimination, and the place of every block among all pivots, padded."""

    phases: tuple[Phase, ...]
    places: Indices


def order_of(count: int, edges: Sequence[tuple[int, int]]) -> EliminationOrder:
    """The elimination of `count` blocks with these edges (a, b), a < b, without repeats.

    Example:
        >>> chain = [(k, k + 1) for k in range(999)]
        >>> [phase.pivots.shape for phase in order_of(1000, chain).phases]
        [(2, 500), (2, 125), (6, 31)]
    """
    rounds = _rounds(count, edges)
    phases: list[Phase] = []
    places = np.zeros(count, int)
    blocks, edge_numbers = list(range(count)), {edge: k for k, edge in enumerate(edges)}
    block_numbers, offset = {k: k for k in blocks}, 0
    while rounds:
        size = _length(rounds, len(blocks))
        phase_rounds, rounds = rounds[:size], rounds[size:]
        numbers = {v: k for k, v in enumerate(blocks)}
        phase, phase_edges = _phase(phase_rounds, blocks, numbers, block_numbers, edge_numbers)
        for k, pivots in enumerate(phase_rounds):
            for j, v in enumerate(pivots):
                places[v] = offset + k * phase.pivots.shape[1] + j
        offset += phase.pivots.size
        phases.append(phase)
        block_numbers, edge_numbers = numbers, phase_edges
        eliminated = {v for pivots in phase_rounds for v in pivots}
        blocks = [v for v in blocks if v not in eliminated]
    return EliminationOrder(tuple(phases), places)


def _length(rounds: list[_Round], blocks: int) -> int:
    """The number of rounds of the next phase."""
    if blocks <= _FEW:
        return len(rounds)
    largest = len(rounds[0])
    return next(
        (k for k, pivots in enumerate(rounds) if _RATIO * len(pivots) <= largest), len(rounds)
    )


def _rounds(count: int, edges: Sequence[tuple[int, int]]) -> list[_Round]:
    beside: dict[int, set[int]] = {v: set() for v in range(count)}
    for a, b in edges:
        beside[a].add(b)
        beside[b].add(a)
    rounds = []
    while beside:
        pivots = {v: sorted(beside[v]) for v in _independent(beside)}
        rounds.append(pivots)
        for v, ends in pivots.items():
            del beside[v]
            for w in ends:
                beside[w].discard(v)
                beside[w].update(x for x in ends if x != w)
    return rounds


def _independent(beside: dict[int, set[int]]) -> list[int]:
    """Blocks without common edges, those with few neighbours first, and none with many."""
    degrees = sorted((len(neighbours), v) for v, neighbours in beside.items())
    # With the least degree alone, a chain would be eliminated from its ends, block by block.
    limit = max(2, degrees[len(degrees) // 2][0])
    blocked: set[int] = set()
    pivots = []
    for degree, v in degrees:
        if degree > limit:
            break
        if v not in blocked:
            pivots.append(v)
            blocked |= beside[v]
    return sorted(pivots)


def _phase(
    rounds: list[_Round], blocks: list[int], numbers: dict[int, int], block_numbers: dict[int, int],
    edge_numbers: dict[tuple[int, int], int],
) -> tuple[Phase, dict[tuple[int, int], int]]:  # fmt: skip
    """The phase of some rounds, and the numbers of its edges."""
    remaining = [(a, b) for a, b in edge_numbers if a in numbers and b in numbers]
    edges = {edge: k for k, edge in enumerate(remaining)}
    sources = [edge_numbers[edge] for edge in edges]
    for pivots in rounds:
        for ends in pivots.values():
            for pair in combinations(ends, 2):
                if pair not in edges:
                    edges[pair] = len(edges)
                    sources.append(len(edge_numbers))
    K = len(blocks)
    P = max(map(len, rounds))
    Q = max(sum(map(len, pivots.values())) for pivots in rounds)
    F = max(sum(len(w) * (len(w) - 1) // 2 for w in pivots.values()) for pivots in rounds)
    rows: dict[str, list[Indices]] = {}
    for pivots in rounds:
        for name, values in _indices(pivots, numbers, edges, K, P, Q, F).items():
            rows.setdefault(name, []).append(values)
    later = np.full(len(block_numbers), K)
    later[[block_numbers[v] for v in blocks]] = np.arange(K)
    pads = {"at_blocks": Q, "at_pivots": Q, "at_edges": F}
    phase = Phase(
        blocks=np.array([block_numbers[v] for v in blocks]),
        later=later,
        edges=np.array(sources, int),
        **{name: _stacked(values, pads.get(name, 0)) for name, values in rows.items()},
    )
    return phase, edges


def _indices(
    pivots: _Round, numbers: dict[int, int], edges: dict[tuple[int, int], int],
    K: int, P: int, Q: int, F: int,
) -> dict[str, Indices]:  # fmt: skip
    """The indices of one round, as in `Phase`."""
    e = len(edges)
    ways = [(k, v, w) for k, (v, ends) in enumerate(pivots.items()) for w in ends]
    place = {(v, w): k for k, (_, v, w) in enumerate(ways)}
    beside = [edges[v, w] if v < w else edges[w, v] + e for _, v, w in ways]
    pairs = [(v, *pair) for v, ends in pivots.items() for pair in combinations(ends, 2)]
    position = np.full(K, P)
    position[[numbers[v] for v in pivots]] = np.arange(len(pivots))
    pivot = _padded([k for k, _, _ in ways], Q, P)
    end = _padded([numbers[w] for _, _, w in ways], Q, K)
    changed = [edges[w, x] for _, w, x in pairs]
    return {
        "pivots": _padded([numbers[v] for v in pivots], P, K),
        "position": position,
        "beside": _padded(beside, Q, 2 * e),
        "pivot": pivot,
        "end": end,
        "at_blocks": table_of(end[: len(ways)], K, Q),
        "at_pivots": table_of(pivot[: len(ways)], P, Q),
        "first": _padded([place[v, w] for v, w, _ in pairs], F, Q),
        "second": _padded([place[v, x] for v, _, x in pairs], F, Q),
        "at_edges": table_of(changed, e, F),
    }


def _padded(values: Sequence[int], size: int, pad: int) -> Indices:
    return np.array([*values, *[pad] * (size - len(values))], int)


def _stacked(rounds: list[Indices], pad: int) -> Indices:
    """The indices of all rounds; tables get as many rows as the largest."""
    if rounds[0].ndim == 1:
        return np.stack(rounds)
    height = max(map(len, rounds))
    return np.stack(
        [np.pad(x, ((0, height - len(x)), (0, 0)), constant_values=pad) for x in rounds]
    )
