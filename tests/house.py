"""The layout of the package, read from its sources: layers and names.

The layers (`LAYERS`) are those of docs/design.md. A tree of sources is a dictionary, path in the
package to text, so that the checker can be tested on wrong layouts too.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "jaxmech"
LAYERS = (
    {"compiler", "linalg", "meshes", "status", "utils"},
    {
        "dry_friction",
        "consistency",
        "constraints",
        "equations",
        "first_order",
        "geometry",
        "properties",
        "signal",
        "subjects",
        "system",
        "unilateral",
        "quasi_velocities",
        "rates",
    },
    {"formulations", "models", "parts"},
    {
        "assemble",
        "integrate",
        "interop",
        "nearest",
        "stabilization",
    },
    {"control", "observe", "sensitivity", "simulate", "solution", "solution_views"},
    {"analysis", "config", "ensemble", "identify"},
    {"__main__", "cli", "errors", "laws", "plot"},
)
ONLY = {  # folders that may import less than their layer allows
    "models": LAYERS[1] | {"meshes"},
    "parts": LAYERS[1] | {"meshes", "utils"},
    "linalg": set(),
    "compiler": {"utils"},
    "utils": set(),
}
OPEN = {"utils"}  # rooms of helpers, whose files are imported one by one
OPEN_FILES = {f"{PACKAGE}.config.errors"}
# where jax.config and os.environ may be written: where processes begin
MAY_SET = {"jaxmech.cli.main", "jaxmech.ensemble.cluster.tasks"}
JAX_INTERNALS = f"{PACKAGE}.utils.jax_internals"  # the only file that may use them
UNDOCUMENTED = ("jax.core", "jax.extend", "jax.interpreters", "jax._src", "jaxlib")
OF_ONE_KIND = ("models", "ensemble/statistics")  # folders whose files need not be named one by one
ENVIRON_WRITES = {"clear", "pop", "popitem", "setdefault", "update"}


@dataclass(frozen=True)
class File:
    """One source file: `module` in dotted form, `top_name` the first name inside the package."""

    path: str
    tree: ast.Module

    @property
    def is_init(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def module(self) -> str:
        parts = [PACKAGE, *Path(self.path).with_suffix("").parts]
        return ".".join(parts[:-1] if self.is_init else parts)

    @property
    def top_name(self) -> str:
        return top_name(self.module)

    def imports(self) -> Iterator[tuple[int, str, str]]:
        """(line, module, name) of everything imported, at any depth; the name may be empty."""
        package = self.module.split(".")[: None if self.is_init else -1]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*base, *([node.module] if node.module else [])])
                yield from ((node.lineno, module, alias.name) for alias in node.names)


def top_name(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def layer(top_name: str) -> int | None:
    return next((level for level, names in enumerate(LAYERS) if top_name in names), None)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def package_imports(file: File, modules: set[str]) -> Iterator[tuple[int, str]]:
    """(line, module) of each import from the package in a file."""
    for line, module, name in file.imports():
        if module.split(".")[0] == PACKAGE:
            yield line, f"{module}.{name}" if f"{module}.{name}" in modules else module


def wrong_layers(file: File, modules: set[str]) -> Iterator[str]:
    if file.module == PACKAGE:
        return
    own = layer(file.top_name)
    if own is None:
        yield f"{file.path}: has no layer; add it to LAYERS in tests/house.py"
        return
    for line, module in package_imports(file, modules):
        other, where = top_name(module), f"{file.path}:{line}"
        level = layer(other)
        if module == PACKAGE:
            yield f"{where}: imports the package itself; import from the file that defines the name"
        elif level is None or level > own:
            yield f"{where}: layer {own} imports {module} of layer {level}"
        elif file.top_name in ONLY and other not in ONLY[file.top_name] | {file.top_name}:
            yield f"{where}: {file.top_name} must not import {module}"


def room(module: str, rooms: Iterable[str]) -> str | None:
    """The innermost room that a module is in, or is the door of; None for a single file."""
    inside = [name for name in rooms if f"{module}.".startswith(f"{name}.")]
    return max(inside, key=len, default=None)


def back_doors(files: list[File]) -> Iterator[str]:
    """Imports of another room's inside, beside its `__init__`."""
    doors = {
        file.module: {name for _, _, name in file.imports()}
        for file in files
        if file.is_init and file.module.count(".") == (2 if file.top_name == "interop" else 1)
    }
    doors = {module: names for module, names in doors.items() if top_name(module) not in OPEN}
    for file in files:
        if file.module == PACKAGE:
            continue
        for line, module, name in file.imports():
            other = room(module, doors)
            if other is None or other == room(file.module, doors) or module in OPEN_FILES:
                continue
            if module != other or name not in doors[other]:
                yield f"{file.path}:{line}: imports {module} by the back door of {other}"


def circles(files: list[File], modules: set[str]) -> Iterator[str]:
    direct = {f.module: {module for _, module in package_imports(f, modules)} for f in files}

    for module, others in direct.items():
        for other in sorted(others):
            if module in reachable(other, direct):
                yield f"{module} and {other} import each other"


def reachable(module: str, direct: dict[str, set[str]]) -> set[str]:
    """A module and everything that it imports, directly or indirectly."""
    seen, waiting = set(), [module]
    while waiting:
        seen.add(module := waiting.pop())
        waiting += direct.get(module, set()) - seen
    return seen


def private_names(file: File) -> Iterator[str]:
    known = set()
    for line, module, name in file.imports():
        known.add(name or module.split(".")[0])
        if any(map(is_private, [*module.split("."), name])):
            yield f"{file.path}:{line}: imports the private name {module}.{name}".rstrip(".")
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {alias.asname for alias in node.names if alias.asname}
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner.split(".")[0] in known:
                yield f"{file.path}:{node.lineno}: uses the private name {owner}.{node.attr}"


def jax_internals(file: File) -> Iterator[str]:
    """Uses of JAX's insides outside of the one file for them."""
    if file.module == JAX_INTERNALS:
        return
    uses = [(line, f"{module}.{name}") for line, module, name in file.imports()]
    attributes = [node for node in ast.walk(file.tree) if isinstance(node, ast.Attribute)]
    uses += [(node.lineno, ast.unparse(node)) for node in attributes]
    for line, name in uses:
        if any(f"{name}.".startswith(f"{module}.") for module in UNDOCUMENTED):
            yield f"{file.path}:{line}: uses {name}; only {JAX_INTERNALS} may use JAX's insides"


def own_code_in_init(file: File) -> Iterator[str]:
    if not file.is_init or file.module == PACKAGE:  # the root imports some namespaces when used
        return
    for node in file.tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        dunder = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__")
        again = isinstance(node, ast.ImportFrom) and all(a.asname == a.name for a in node.names)
        if not (docstring or dunder or again):
            yield f"{file.path}:{node.lineno}: does more than re-export (from ... import X as X)"


def settings(file: File) -> Iterator[str]:
    """Writes to jax.config and to the environment."""
    if file.module in MAY_SET:
        return
    for node in ast.walk(file.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)):
                name = ast.unparse(owner).split(".")[-1]
                wrong = (name == "config" and attr == "update") or (
                    name == "environ" and attr in ENVIRON_WRITES
                )
                wrong |= name == "os" and attr in {"putenv", "unsetenv"}
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
                wrong = ast.unparse(owner).split(".")[-1] == "environ"
            case ast.Attribute(value=owner, ctx=ast.Store()):
                wrong = ast.unparse(owner) == "jax.config"
            case ast.AugAssign(target=ast.Attribute(attr=attr)):
                wrong = attr == "environ"
            case _:
                wrong = False
        if wrong:
            yield f"{file.path}:{node.lineno}: changes settings of the process"


def shared_class_names(files: list[File]) -> Iterator[str]:
    """Class names that are used twice."""
    places: dict[str, list[str]] = {}
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(file.path)
    for name, paths in places.items():
        if len(paths) > 1:
            yield f"{' and '.join(paths)}: each has a class {name}"


def faults(sources: dict[str, str]) -> list[str]:
    """Everything that is wrong with a tree of sources."""
    files = [File(path, ast.parse(text)) for path, text in sources.items()]
    modules = {file.module for file in files}
    return [
        *circles(files, modules),
        *back_doors(files),
        *shared_class_names(files),
        *(fault for file in files for fault in wrong_layers(file, modules)),
        *(
            fault
            for rule in (private_names, jax_internals, own_code_in_init, settings)
            for file in files
            for fault in rule(file)
        ),
    ]


def foreign_packages(sources: dict[str, str]) -> set[str]:
    """The third-party packages that a tree of sources imports."""
    files = [File(path, ast.parse(text)) for path, text in sources.items()]
    names = {module.split(".")[0] for file in files for _, module, _ in file.imports()}
    return names - sys.stdlib_module_names - {PACKAGE}


def unnamed(sources: dict[str, str]) -> list[str]:
    """Files and folders that the docstring of the `__init__` around them does not name."""
    found = []
    for path, text in sources.items():
        folder = path.removesuffix("/__init__.py")
        if folder == path or folder in OF_ONE_KIND:
            continue
        inside = (other[len(folder) + 1 :] for other in sources if other.startswith(f"{folder}/"))
        names = {other.partition("/")[0].removesuffix(".py") for other in inside} - {"__init__"}
        about = ast.get_docstring(ast.parse(text)) or ""
        found += [f"{path} does not name {x}" for x in names if not re.search(f"`{x}/?`", about)]
    return sorted(found)


def layers_of(design: str) -> dict[str, int]:
    """The layer of each file and folder in the first table of docs/design.md."""
    rows = re.findall(r"^\| (\d) \| (.*?) \|", design, re.MULTILINE)
    names = ((int(layer), name) for layer, cell in rows for name in re.findall(r"`(.*?)`", cell))
    return {name.removesuffix("/").removesuffix(".py"): layer for layer, name in names}
