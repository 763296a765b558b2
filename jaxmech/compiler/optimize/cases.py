"""In which case of a choice a number is used, and what that says of it."""

from jaxmech.compiler.ir.graph import Graph

Case = frozenset[tuple[int, bool]]  # truth values that decide, and what they have to be
ALWAYS: Case = frozenset()

_CHOICES = ("select_n", "branch")
_MOST_DECIDING, _MOST_CASES = 4, 12  # more are not followed
_DEEPEST = 40  # operations that a sign is traced through
_OF_SIGNS = ("add", "mul", "div", "max", "min", "sqrt", "rsqrt", "convert_element_type")


def alternatives(g: Graph, number: int) -> list[tuple[int, Case | None]]:
    """The values that a choice has, each with the case for it; none if it is no choice.

    The case is None where a whole number decides.
    """
    node = g.nodes[number]
    if node.op not in _CHOICES:
        return []
    which, *values = node.inputs
    if g.nodes[which].dtype != bool:
        return [(value, None) for value in values]
    return [(value, frozenset([_plain(g, which, bool(k))])) for k, value in enumerate(values)]


def _plain(g: Graph, which: int, holds: bool) -> tuple[int, bool]:
    while g.nodes[which].op == "not":
        (which,), holds = g.nodes[which].inputs, not holds
    return which, holds


def within(case: Case, own: Case | None) -> Case:
    """A case and what else decides, as far as it is followed."""
    return case if own is None or len(case) >= _MOST_DECIDING else case | own


def add_case(known: set[Case], case: Case) -> None:
    """Adds a case to a set of cases; two that differ in what one truth value is become one."""
    if len(case) > _MOST_DECIDING or len(known) >= _MOST_CASES or any(k <= case for k in known):
        return
    for which, holds in case:
        rest = case - {(which, holds)}
        if rest | {(which, not holds)} in known:
            add_case(known, rest)
            return
    for wider in [k for k in known if case < k]:
        known.remove(wider)
    known.add(case)


def is_positive(g: Graph, number: int, case: Case = ALWAYS, or_zero: bool = False) -> bool:
    """Whether a number is larger than zero in a case, or NaN; by its operations and by the case."""
    return _Signs().of(g, number, case, _DEEPEST) >= (1 if or_zero else 2)


class _Signs:
    """Signs of numbers: 2 if positive or NaN, 1 if not negative or NaN, 0 if nothing is known."""

    def __init__(self) -> None:
        self.known: dict[tuple[Graph, int, Case], int] = {}

    def of(self, g: Graph, number: int, case: Case, depth: int) -> int:
        """The sign of a number in a case, by operations down to a depth."""
        key = g, number, case
        if key not in self.known:
            self.known[key] = self._found(g, number, case, depth)
        return self.known[key]

    def _found(self, g: Graph, number: int, case: Case, depth: int) -> int:
        value, node = g.values[number], g.nodes[number]
        if value is not None:
            return 2 if value > 0 else int(value == 0)
        if depth == 0 or node.dtype.kind != "f":
            return 0
        if node.op == "capture":
            assert g.outer is not None
            return self.of(g.outer, node.params, ALWAYS, depth - 1)
        if any(self._exceeds(g, number, *one, depth - 1) for one in case):
            return 2
        if choices := alternatives(g, number):
            return min(self.of(g, i, within(case, own), depth - 1) for i, own in choices)
        if node.op in ("exp", "exp2"):
            return 2
        if node.op == "abs" or (node.op == "mul" and node.inputs[0] == node.inputs[1]):
            return 1
        if node.op not in _OF_SIGNS:
            return 0
        signs = [self.of(g, i, case, depth - 1) for i in node.inputs]
        return max(signs) if node.op == "max" or (node.op == "add" and min(signs)) else min(signs)

    def _exceeds(self, g: Graph, number: int, which: int, holds: bool, depth: int) -> bool:
        """Whether a truth value says that the number is larger than one that is not negative.

        Or that it is NaN: a comparison that does not hold leaves that open.
        """
        node = g.nodes[which]
        if node.op == "not":
            return self._exceeds(g, number, node.inputs[0], not holds, depth)
        if node.op == ("and" if holds else "or"):
            return any(self._exceeds(g, number, i, holds, depth) for i in node.inputs)
        if node.op not in ("gt", "ge", "lt", "le"):
            return False
        larger, smaller = node.inputs if (node.op[0] == "g") == holds else node.inputs[::-1]
        is_strict = (node.op[1] == "t") == holds
        enough = 1 if is_strict else 2
        return larger == number and self.of(g, smaller, ALWAYS, depth) >= enough
