"""The interface of XLA's foreign functions: its structures, and the beginning of every handler."""

from jaxmech.compiler.backends.llvm.template import template

FFI_TYPES = template("llvm/ffi_types.ll").template
CAPTURABLE = 1  # trait: the call always starts the same work, which may be recorded and replayed


def answer_query(traits: int) -> str:
    """Write the first lines of a handler, which answer queries and define `%stage.is`."""
    return template("llvm/ffi_query.ll").substitute(traits=traits)
