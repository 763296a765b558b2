"""Settings of the documentation site: `make docs`."""

import inspect
import os
import re
import shutil
from pathlib import Path
from typing import Any

# The examples run on the processor, without messages about devices.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jupytext
from docutils.nodes import SkipNode
from latex2mathml.converter import convert as latex_to_mathml

import jaxmech

ROOT = Path(__file__).resolve().parents[1]

project = "jaxmech"
author = "The jaxmech authors"
copyright = "The jaxmech authors, Apache-2.0"  # noqa: A001
release = version = jaxmech.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "paper.md"]  # a draft for JOSS
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]

# Pages in Markdown; examples are notebooks in text form, whose outputs are cached.
source_suffix = {
    ".rst": "restructuredtext",
    ".md": "myst-nb",
}  # the reference is written in the first
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "jaxmech"
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "pygments_light_style": "default",
    "pygments_dark_style": "monokai",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}  # without it, a first visit logs an error
html_show_sourcelink = False
PLAIN = ("index", "overview", "installation", "ten_minutes", "compared", "changes")  # no side bar
html_sidebars = {name: [] for name in PLAIN}
html_math_renderer = "mathml"

# Shapes and units are in the docstrings; annotations would repeat them at every argument.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}
autosummary_generate = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_attr_annotations = False
napoleon_use_rtype = False
default_role = "py:obj"
highlight_language = "none"  # of blocks that name none, which are outputs
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
intersphinx_mapping = {}
if os.environ.get("DOCS_OFFLINE", "1") != "1":
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
        "numpy": ("https://numpy.org/doc/stable", None),
    }

LITERAL = re.compile(r"(``[^`]*``|`[^`]*`)")


def escape(line: str) -> str:
    """Escape characters of mathematics that reStructuredText takes for markup: |x|, a*, x_."""
    pieces = LITERAL.split(line)
    for k in range(0, len(pieces), 2):
        pieces[k] = re.sub(r"(?<!\\)([|*])", r"\\\1", pieces[k])
        pieces[k] = re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", pieces[k])
    return "".join(pieces)


def escape_docstring(
    app: Any, what: str, name: str, subject: Any, options: Any, lines: list[str]
) -> None:
    """Escape a docstring, without its examples."""
    example = re.compile(r"\s*(>>>|\.\.\.)")
    lines[:] = [line if example.match(line) else escape(line) for line in lines]


def sign(
    app: Any, what: str, name: str, subject: Any, options: Any, arguments: str, returns: str
) -> tuple[str, str] | None:
    """Show the arguments of `__init__` for classes that look at them in `__new__` first."""
    if what != "class" or not arguments or not arguments.startswith("(*args"):
        return None
    parameters = list(inspect.signature(subject.__init__).parameters.values())[1:]
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain)), returns


def link_pages(app: Any, path: Any, parent: str, content: list[str]) -> None:
    """The list of changes and the README link to pages from the root of the repository."""
    content[0] = content[0].replace("](docs/", "](")


def write_notebooks() -> None:
    """Write the examples as notebooks, which are executed where they changed, with their files."""
    for data in sorted((ROOT / "examples").glob("*.urdf")):
        shutil.copyfile(data, ROOT / "docs" / "examples" / data.name)
    for example in sorted((ROOT / "examples").glob("*.py")):
        notebook = ROOT / "docs" / "examples" / example.with_suffix(".ipynb").name
        cells = jupytext.read(example)
        cells.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        for number, cell in enumerate(cells.cells):
            cell["id"] = f"cell-{number}"  # the same in every build
        text = jupytext.writes(cells, fmt="ipynb")
        if not notebook.is_file() or notebook.read_text(encoding="utf-8") != text:
            notebook.write_text(text, encoding="utf-8")


def write_inline(translator: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without scripts from elsewhere."""
    translator.body.append(latex_to_mathml(node.astext()))
    raise SkipNode


def write_display(translator: Any, node: Any) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(latex_to_mathml(node.astext(), display="block"))
    raise SkipNode


def setup(app: Any) -> None:
    """Connect the functions above."""
    write_notebooks()
    app.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)
    app.connect("autodoc-process-signature", sign)
    app.connect("include-read", link_pages)
