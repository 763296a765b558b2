"""The layout of the package: layers, private names, re-exports, settings, dependencies, shapes."""

import tomllib
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import pytest
from packaging.requirements import Requirement

import jaxmech
from tests.house import LAYERS, PACKAGE, faults, foreign_packages, layers_of, unnamed

EXTRAS = (
    "cluster",
    "diffrax",
    "mesh",
    "mujoco",
    "posterior",
    "reliability",
    "sympy",
    "xarray",
)
ROOT = Path(__file__).resolve().parents[1]


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def sources(folder: str) -> dict[str, str]:
    top = ROOT / folder
    return {p.relative_to(top).as_posix(): p.read_text("utf-8") for p in top.rglob("*.py")}


def package_sources() -> dict[str, str]:
    return sources(PACKAGE)


def packages(requirements: list[str]) -> set[str]:
    return {Requirement(r).name.replace("-", "_") for r in requirements}


def test_the_layout_of_the_package() -> None:
    assert len(package_sources()) > 20
    assert faults(package_sources()) == []


def test_folders_name_their_files() -> None:
    assert unnamed(package_sources()) == []


def test_the_design_shows_the_layers() -> None:
    shown = layers_of((ROOT / "docs" / "design.md").read_text("utf-8"))
    on_disk = {path.removesuffix(".py").partition("/")[0] for path in package_sources()}
    whole = {name: layer for name, layer in shown.items() if "/" not in name and name != "jaxmech"}
    expected = {name: layer for layer, names in enumerate(LAYERS) for name in names}
    assert on_disk == expected.keys() | {"__init__"}
    assert whole == {name: layer for name, layer in expected.items() if name != "__main__"}
    assert all((ROOT / PACKAGE / name).is_dir() for name in shown if "/" in name)


def test_dependencies_are_what_is_imported() -> None:
    extras = project()["optional-dependencies"]
    extra = packages([r for name in EXTRAS for r in extras[name]])
    found = foreign_packages(package_sources()) - {"mpl_toolkits", "PIL"} - extra  # with matplotlib
    assert found == packages(project()["dependencies"])


def test_what_only_the_experiments_import_is_an_extra() -> None:
    own = packages(project()["dependencies"]) | {"experiments"}
    extras = project()["optional-dependencies"]
    extra = packages([*extras["bench"], "dask", "distributed"])
    assert foreign_packages(sources("experiments")) - own == extra


def test_the_version_is_the_one_of_the_project() -> None:
    assert jaxmech.__version__ == project()["version"]


def test_shapes_are_checked_while_tests_run() -> None:
    M = jnp.eye(2)
    with pytest.raises(jaxtyping.TypeCheckError, match="Q"):
        jaxmech.laws.EquationsOfMotion(M, jnp.zeros(3), M, jnp.zeros(2))


SMALL_PACKAGE = {
    "__init__.py": '"""Code."""\nfrom jaxmech.system import System as System\n__version__ = "1"',
    "cli/main.py": "import jax\nimport jaxmech.plot\njax.config.update('jax_enable_x64', True)",
    "linalg/__init__.py": "from jaxmech.linalg.ldl import LDL as LDL",
    "linalg/ldl.py": "import os\n_EPS = 1e-12\nclass LDL: pass\nflags = os.environ.get('X')",
    "models/chain.py": "from jaxmech.models.model import Model\nfrom ..system import System",
    "models/model.py": "from jaxmech.system import System",
    "plot.py": "def plot(ax): ax.figure._suptitle = None",
    "system.py": "from jaxmech.linalg import LDL\nclass System: pass",
}


def test_a_small_layout_is_accepted() -> None:
    assert faults(SMALL_PACKAGE) == []


def test_a_folder_that_does_not_name_its_files_is_reported() -> None:
    told = {"linalg/__init__.py": '"""`ldl` and `fast/`."""', "linalg/fast/__init__.py": ""}
    assert unnamed(told | {"linalg/ldl.py": "", "linalg/qr.py": "", "linalg/fast/lu.py": ""}) == [
        "linalg/__init__.py does not name qr",
        "linalg/fast/__init__.py does not name lu",
    ]


@pytest.mark.parametrize(
    ("path", "line", "fault"),
    [
        ("system.py", "from jaxmech.models.model import Model", "of layer 2"),
        ("system.py", "def f():\n    import jaxmech.plot.trajectories", "of layer 6"),
        ("system.py", "from .simulate import simulate", "of layer 4"),
        ("system.py", "from jaxmech.linalg.ldl import LDL", "by the back door of jaxmech.linalg"),
        ("system.py", "from jaxmech.linalg import ldl", "by the back door of jaxmech.linalg"),
        ("interop/mujoco/__init__.py", "from jaxmech.linalg.ldl import LDL", "by the back door"),
        ("system.py", "from jaxmech import System", "imports the package itself"),
        ("system.py", "import jaxmech as jm", "imports the package itself"),
        ("garden.py", "", "has no layer"),
        ("models/model.py", "class LDL: pass", "each has a class LDL"),
        ("models/model.py", "from jaxmech.linalg import LDL", "models must not import"),
        ("models/model.py", "from jaxmech.formulations import Law", "models must not import"),
        ("models/model.py", "from jaxmech.models.chain import chain", "import each other"),
        ("parts/joints/base.py", "from jaxmech.models.model import Model", "parts must not import"),
        ("linalg/ldl.py", "from jaxmech.linalg import LDL", "import each other"),
        ("linalg/ldl.py", "from jaxmech.status import Status", "linalg must not import"),
        ("linalg/ldl.py", "from jaxmech.system import System", "of layer 1"),
        ("compiler/block.py", "from jaxmech.equations import mass_matrix", "of layer 1"),
        ("system.py", "from jaxmech.linalg.ldl import _EPS", "private name"),
        ("system.py", "from jaxmech.linalg import ldl as l\nl._EPS", "private name"),
        ("system.py", "import jaxmech.linalg.ldl\njaxmech.linalg.ldl._EPS", "private name"),
        ("plot.py", "from jax._src import core", "private name"),
        ("plot.py", "from jax._src import core", "JAX's insides"),
        ("plot.py", "from jax.extend.core import Jaxpr", "JAX's insides"),
        ("plot.py", "from jax.interpreters import ad", "JAX's insides"),
        ("plot.py", "from jax import core", "JAX's insides"),
        ("plot.py", "import jax\nisinstance(1, jax.core.Tracer)", "JAX's insides"),
        ("linalg/__init__.py", "def helper(): pass", "more than re-export"),
        ("linalg/__init__.py", "from jaxmech.linalg.ldl import LDL", "more than re-export"),
        ("linalg/__init__.py", "SOLVERS = {}", "more than re-export"),
        ("plot.py", "import jax\njax.config.update('jax_enable_x64', True)", "settings"),
        ("plot.py", "from jax import config\nconfig.update('jax_enable_x64', True)", "settings"),
        ("plot.py", "import jax\njax.config.jax_enable_x64 = True", "settings"),
        ("plot.py", "import os\nos.environ['XLA_FLAGS'] = ''", "settings"),
        ("plot.py", "import os\nos.environ |= {}", "settings"),
        ("plot.py", "import os\ndel os.environ['XLA_FLAGS']", "settings"),
        ("plot.py", "from os import environ\nenviron.setdefault('XLA_FLAGS', '')", "settings"),
        ("plot.py", "import os\nos.putenv('XLA_FLAGS', '')", "settings"),
    ],
)
def test_a_wrong_layout_is_reported(path: str, line: str, fault: str) -> None:
    found = faults({**SMALL_PACKAGE, path: SMALL_PACKAGE.get(path, "") + "\n" + line})
    assert any(fault in message for message in found), found


def test_the_namespace_of_the_package_is_small() -> None:
    shown = [name for name in dir(jaxmech) if not name.startswith("_")]
    assert len(shown) <= 44
    assert all(hasattr(jaxmech, name) for name in shown)
    with pytest.raises(AttributeError, match="has no attribute 'simulatte'"):
        _ = jaxmech.simulatte
