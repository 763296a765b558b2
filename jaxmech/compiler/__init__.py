"""Compilation of functions of a single trajectory to native code under `jax.vmap`.

Read in the order in which a function is compiled: `operation` is the JAX primitive with its
transformation rules, and a decorator; `vectorize` chooses what is compiled. `frontend/` turns a
jaxpr into a graph of scalars, `ir/` is that graph, `optimize/` simplifies it, and `backends/`
generate and run the code. `platforms` lists where native code is available, `explain` reports how a
function was compiled, `rows` are results that a loop writes, and `jacobian` is a Jacobian with
structural zeros. Nothing here depends on mechanics.
"""

from jaxmech.compiler.backends.disk_cache import cache_folder as cache_folder
from jaxmech.compiler.backends.primitive import all_devices as all_devices
from jaxmech.compiler.backends.primitive import backend_of as backend_of
from jaxmech.compiler.backends.primitive import lanes as lanes
from jaxmech.compiler.explain import Explanation as Explanation
from jaxmech.compiler.explain import NativeCodeWarning as NativeCodeWarning
from jaxmech.compiler.jacobian import jacobian as jacobian
from jaxmech.compiler.operation import AbstractRule as AbstractRule
from jaxmech.compiler.operation import Arrays as Arrays
from jaxmech.compiler.operation import Flags as Flags
from jaxmech.compiler.operation import batched as batched
from jaxmech.compiler.operation import batched_closure as batched_closure
from jaxmech.compiler.operation import bind as bind
from jaxmech.compiler.operation import hoisted as hoisted
from jaxmech.compiler.operation import native_call as native_call
from jaxmech.compiler.operation import native_program as native_program
from jaxmech.compiler.operation import operation_of as operation_of
from jaxmech.compiler.platforms import off as off
from jaxmech.compiler.platforms import unchecked as unchecked
from jaxmech.compiler.platforms import unoptimized as unoptimized
from jaxmech.compiler.platforms import why_not as why_not
from jaxmech.compiler.rows import empty_rows as empty_rows
from jaxmech.compiler.rows import with_row as with_row
from jaxmech.compiler.vectorize import explain as explain
from jaxmech.compiler.vectorize import vectorize as vectorize
