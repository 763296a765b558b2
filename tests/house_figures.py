"""Figures of the sources: sizes, names, docstrings and comments, by room.

`python -m tests.house` prints them. A room is a folder or a file at the top of the package.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

# Function words and participles that say nothing of the value.
_WORDS = """
about above after all another any asked at before begun below between both bound by called done
each either every few found given gone got had held here it its itself kept known left less like
made many more most moving much named needed none now of off on once one ones only other others
over own per put rest right said same seen several shown so some still taken text that the them
then there these they this those to together told two under until up used wanted was way what when
where which whole whose with within without
"""
EMPTY_NAMES = frozenset(_WORDS.split())


@dataclass
class Room:
    """Counts of a room, which add up."""

    files: int = 0
    lines: int = 0
    classes: int = 0
    functions: int = 0
    names: int = 0  # bound by assignments, loops, arguments and definitions
    empty_names: int = 0
    private_functions: int = 0
    private_docstrings: int = 0
    comments: int = 0  # lines with one

    def __iadd__(self, other: "Room") -> "Room":
        for field in fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)
        return self


def bound_names(tree: ast.AST) -> Iterator[str]:
    """All names that a source binds, as often as it binds them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def room_of(text: str) -> Room:
    """The counts of one file."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    functions = [x for x in nodes if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = Counter(name for name in bound_names(tree) if name != "_")
    private = [x for x in functions if x.name.startswith("_") and not x.name.endswith("__")]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Room(
        files=1,
        lines=text.count("\n"),
        classes=sum(isinstance(x, ast.ClassDef) for x in nodes),
        functions=len(functions),
        names=names.total(),
        empty_names=sum(count for name, count in names.items() if name in EMPTY_NAMES),
        private_functions=len(private),
        private_docstrings=sum(ast.get_docstring(x) is not None for x in private),
        comments=sum(token.type == tokenize.COMMENT for token in tokens),
    )


def rooms(sources: Mapping[str, str]) -> dict[str, Room]:
    """The counts by room, and in all."""
    counts: dict[str, Room] = {}
    for path, text in sorted(sources.items()):
        room = path.partition("/")[0].removesuffix(".py")
        for name in (room, "all"):
            counts.setdefault(name, Room())
            counts[name] += room_of(text)
    return counts


def most_used(sources: Mapping[str, str], count: int = 20) -> list[tuple[str, int]]:
    """The empty names that are bound most often."""
    names = Counter(name for text in sources.values() for name in bound_names(ast.parse(text)))
    return Counter({k: n for k, n in names.items() if k in EMPTY_NAMES}).most_common(count)


def table(sources: Mapping[str, str]) -> str:
    """The figures as a table."""
    head = ("room", "files", "lines", "classes", "functions", "empty names", "of all")
    head += ("private docstrings", "comments")
    rows = [head]
    for name, room in rooms(sources).items():
        rows.append(
            (
                name,
                str(room.files),
                str(room.lines),
                str(room.classes),
                str(room.functions),
                str(room.empty_names),
                _share(room.empty_names, room.names),
                _share(room.private_docstrings, room.private_functions),
                _share(room.comments, room.lines),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True)) for row in rows]
    words = ", ".join(f"{name} {n}" for name, n in most_used(sources))
    return "\n".join([*lines, "", f"empty names: {words}"])


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
