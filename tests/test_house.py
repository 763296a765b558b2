"""The layout of the package, read from its sources: layers, doors, circles, sizes, dependencies.

`house.toml` has the layers, and for each room how many lines it may have, and how many names its
door may hand on. Both only fall: a number is raised in no commit that does not lower another.
"""

import ast
import importlib.util
import os
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import pytest
from packaging.requirements import Requirement

import jaxmech

ROOT = Path(__file__).resolve().parents[1]
HOUSE = tomllib.loads((ROOT / "tests" / "house.toml").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OPEN = ("jaxmech.utils", "jaxmech.config.errors")  # helpers, imported file by file
INTERNALS = "jaxmech.utils.jax_internals"  # the only file that may use what JAX does not document
UNDOCUMENTED = ("jax.core", "jax.extend", "jax.interpreters", "jax._src", "jaxlib")
# where jax.config and os.environ may be written: where processes begin
MAY_SET = ("jaxmech.cli.main", "jaxmech.ensemble.cluster")


def sources(folder: str) -> dict[str, str]:
    top = ROOT / folder
    return {p.relative_to(top).as_posix(): p.read_text("utf-8") for p in top.rglob("*.py")}


def modules(files: dict[str, str]) -> dict[str, ast.Module]:
    """The trees of files of the package, by module."""
    found = {}
    for path, text in files.items():
        parts = ["jaxmech", *Path(path).with_suffix("").parts]
        found[".".join(parts).removesuffix(".__init__")] = ast.parse(text)
    return found


def imports(tree: ast.Module) -> list[tuple[int, str, str]]:
    """(line, module, name) of everything imported at any depth, by a string too."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, alias.name, "") for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                assert not level, "relative imports are not used"
                found += [(node.lineno, module, alias.name) for alias in names]
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                if ast.unparse(func).split(".")[-1] in ("import_module", "__import__"):
                    found.append((node.lineno, name, ""))
    return found


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def faults(files: dict[str, str]) -> list[str]:
    """Everything that is wrong with a tree of sources."""
    trees, found = modules(files), []
    layers = {name: k for k, names in enumerate(HOUSE["layers"]) for name in names}
    edges: dict[str, set[str]] = {}
    all_imports = {module: imports(tree) for module, tree in trees.items()}
    handed = {module: {name for _, _, name in those} for module, those in all_imports.items()}
    for module, tree in trees.items():
        for line, origin, name in all_imports[module]:
            place, target = f"{module}:{line}", f"{origin}.{name}".rstrip(".")
            internal = any(f"{target}.".startswith(f"{x}.") for x in UNDOCUMENTED)
            if internal and module != INTERNALS:
                found.append(f"{place} uses {target}, which only {INTERNALS} may")
            if any(x.startswith("_") and not x.endswith("__") for x in target.split(".")):
                found += [f"{place} imports the private name {target}"] * (module != "jaxmech")
            if origin.split(".")[0] != "jaxmech" or module == "jaxmech":
                continue
            target = target if target in trees else origin
            edges.setdefault(module, set()).add(target)
            here, there = room(module), room(target)
            if not there:
                found.append(f"{place} imports the package itself")
            elif here not in layers:
                found.append(f"{place}: {here} has no layer in house.toml")
            elif layers.get(there, 99) > layers[here]:
                found.append(f"{place} imports {target} from a layer above")
            elif here in HOUSE["only"] and there not in [here, *HOUSE["only"][here]]:
                found.append(f"{place}: {here} must not import {target}")
            elif here != there and not target.startswith(OPEN) and origin.count("."):
                depth = 3 if there == "interop" else 2
                is_folder = f"{origin[8:].replace('.', '/')}/__init__.py" in files
                inside = origin.count(".") >= depth or (
                    is_folder and {name} - handed[origin] - {""}
                )
                if inside:
                    found.append(f"{place} imports {target} by the back door of {there}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                owner = ast.unparse(node.value).split(".")[0]
                if owner in handed[module] and not node.attr.endswith("__"):
                    found.append(f"{module}:{node.lineno} uses a private name of {owner}")
            if module not in MAY_SET and sets_the_process(node):
                found.append(f"{module}:{node.lineno} changes settings of the process")
    for module in trees:
        if circle := way(module, edges):
            found.append(f"a circle: {' -> '.join(circle)}")
    return found


def sets_the_process(node: ast.AST) -> bool:
    """Whether this writes to jax.config or to the environment."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)):
            name = ast.unparse(owner).split(".")[-1]
            of_environment = attr in {"clear", "pop", "popitem", "setdefault", "update"}
            return (
                (name == "config" and attr == "update")
                or (name == "environ" and of_environment)
                or (name == "os" and attr in {"putenv", "unsetenv"})
            )
        case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
            return ast.unparse(owner).split(".")[-1] == "environ"
        case ast.Attribute(value=owner, ctx=ast.Store()):
            return ast.unparse(owner) == "jax.config"
        case ast.AugAssign(target=ast.Attribute(attr=attr)):
            return attr == "environ"
    return False


def way(start: str, edges: dict[str, set[str]]) -> list[str]:
    """The shortest way along imports from a module back to it, if there is one."""
    before, waiting = {start: ""}, [start]
    for module in waiting:
        for other in sorted(edges.get(module, ())):
            if other == start:
                path = [start, module]
                while before[path[-1]]:
                    path.append(before[path[-1]])
                return path[::-1]
            if other not in before:
                before[other] = module
                waiting.append(other)
    return []


def sizes(files: dict[str, str]) -> dict[str, dict[str, int]]:
    """Lines, and names of the door, of every room; single files are together `core`."""
    found: dict[str, dict[str, int]] = {}
    for path, text in files.items():
        name = path.partition("/")[0] if "/" in path else "core"
        size = found.setdefault(name, {"lines": 0, "door": 0})
        size["lines"] += text.count("\n")
        if path == f"{name}/__init__.py":
            size["door"] = len({name for _, _, name in imports(ast.parse(text)) if name})
    return found


def test_layers_doors_and_circles() -> None:
    files = sources("jaxmech")
    assert len(files) > 20
    assert faults(files) == []


def test_no_room_grows() -> None:
    found, allowed = sizes(sources("jaxmech")), HOUSE["rooms"]
    assert found.keys() == allowed.keys()
    larger = {
        name: size
        for name, size in found.items()
        if size["lines"] > allowed[name]["lines"] or size["door"] > allowed[name]["door"]
    }
    assert larger == {}, "take out before you put in, or lower another room in tests/house.toml"


def foreign_packages(files: dict[str, str]) -> set[str]:
    """The third-party packages that a tree of sources imports."""
    names = {
        module.split(".")[0] for text in files.values() for _, module, _ in imports(ast.parse(text))
    }
    return names - sys.stdlib_module_names - {"jaxmech"}


def packages(*extras: str) -> set[str]:
    lists = [PROJECT["optional-dependencies"][name] for name in extras]
    wanted = [PROJECT["dependencies"]] if not extras else lists
    names = (Requirement(r).name.removesuffix("-wheels") for list_ in wanted for r in list_)
    return {name.replace("-", "_") for name in names}


def test_dependencies_are_what_is_imported() -> None:
    extras = PROJECT["optional-dependencies"].keys() - {"bench", "cuda12", "cuda13", "dev", "docs"}
    found = foreign_packages(sources("jaxmech"))
    found -= {"mpl_toolkits", "PIL", "pandas"}  # with matplotlib and xarray
    assert found - packages(*extras) == packages()


def test_what_only_the_experiments_import_is_an_extra() -> None:
    found = foreign_packages(sources("experiments")) - packages() - {"experiments"}
    assert found - {"dask", "distributed"} == packages("bench")


def missing_names(text: str) -> list[str]:
    """The names that a file imports from the package and that do not exist."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxmech"):
            door = importlib.import_module(str(node.module))
            path = f"{node.module}.{{}}"
            names = [a.name for a in node.names if not hasattr(door, a.name)]
            found += [path.format(n) for n in names if not importlib.util.find_spec(path.format(n))]
    return found


@pytest.mark.parametrize("folder", ["experiments", "examples", "configs"])
def test_what_scripts_import_exists(folder: str) -> None:
    files = sources(folder)
    assert files
    assert {path: names for path, text in files.items() if (names := missing_names(text))} == {}


def test_the_version_is_the_one_of_the_project() -> None:
    assert jaxmech.__version__ == PROJECT["version"]


@pytest.mark.skipif(os.environ.get("CHECK_TYPES") != "1", reason="types are not checked")
def test_shapes_are_checked_while_tests_run() -> None:
    M = jnp.eye(2)
    with pytest.raises(jaxtyping.TypeCheckError, match="Q"):
        jaxmech.laws.EquationsOfMotion(M, jnp.zeros(3), M, jnp.zeros(2))


def test_the_namespace_of_the_package_is_small() -> None:
    shown = [name for name in dir(jaxmech) if not name.startswith("_")]
    assert len(shown) <= 44
    assert all(hasattr(jaxmech, name) for name in shown)
    with pytest.raises(AttributeError, match="has no attribute 'simulatte'"):
        _ = jaxmech.simulatte


if __name__ == "__main__":  # python -m tests.test_house: the rooms as they are, for house.toml
    for name, size in sorted(sizes(sources("jaxmech")).items()):
        print(f"{name} = {{ lines = {size['lines']}, door = {size['door']} }}")
