"""AssemblyBuilder of LLVM in `.ll` files, in which `${name}` stands for a parameter.

A parameter is what differs between programs: a number, a name, or lines that are generated. It is
filled in by `string.Template`, which raises a KeyError if one is missing. The generated modules are
parsed and verified by LLVM in the tests.
"""

from functools import cache
from importlib.resources import files
from string import Template


@cache
def template(path: str) -> Template:
    """The content of a file in `compiler/backends`."""
    return Template((files("jaxmech.compiler.backends") / path).read_text("utf-8"))


FFI_TYPES = template("llvm/ffi_types.ll").template
CAPTURABLE = 1  # trait: the call always starts the same work, which may be recorded and replayed


def answer_query(traits: int) -> str:
    """Write the first lines of a handler, which answer queries and define `%stage.is`."""
    return template("llvm/ffi_query.ll").substitute(traits=traits)
